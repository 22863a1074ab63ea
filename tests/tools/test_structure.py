"""Forced replay of tool calls: calls are read and refused as they should, passes are counted, structures only help."""

import gzip
import json

import numpy as np
import pytest
import tokenizers
from support.paths import ROOT
from support.scripted import Scripted
from support.tools import load_tool

structure, answers = load_tool("bench/structure"), load_tool("bench/answers")

from rescore.decode.draft.blended_drafter import blend_rescorer
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.tree_drafter import TreeDrafter

TOKENIZER = tokenizers.Tokenizer.from_file(str(ROOT / "data/demo/tokenizer.json"))
V = TOKENIZER.get_vocab_size()
ARGUMENTS = {"x": {"type": "integer"}, "far": {"type": "boolean"}}
PARAMETERS = {"type": "object", "properties": ARGUMENTS, "required": ["x"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "move", "parameters": PARAMETERS}}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls") / "calls.jsonl.gz"
    rows = [
        {"kind": "multiple", "calls": [{"name": "move", "arguments": {"x": 12, "far": True}}]},
        {"kind": "multiple", "calls": [{"name": "move", "arguments": {"x": "no number"}}]},
        {"kind": "parallel", "calls": [{"name": "move", "arguments": {"x": x}} for x in (1, 2)]},
        {"kind": "live_simple", "calls": [{"name": "move", "arguments": {"x": 1}}]},
    ]
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({**row, "question": "Move 12 far.", "tools": [TOOL]}) + "\n")
    return list(structure.read_calls(path, TOKENIZER, ("multiple", "parallel"), 10))


def test_calls_are_read(calls):
    assert [one if isinstance(one, str) else one.kind for one in calls] == ["multiple", "multiple", "parallel"]
    assert calls[1] == "multiple" and not isinstance(calls[0], str)
    assert TOKENIZER.decode(calls[2].answer.tolist()) == (
        '[{"name": "move", "arguments": {"x": 1}}, {"name": "move", "arguments": {"x": 2}}]'
    )
    assert TOKENIZER.decode(calls[0].prompt.tolist()).endswith("\n\nUser: Move 12 far.\n\nCall: ")


def test_passes_are_counted(calls):
    """Drafts of two right tokens: the prompt's pass yields one token, each other pass three."""
    call = calls[0]
    text = np.concatenate((call.prompt, call.answer))
    right = Scripted(lambda history: text[None, len(history) : len(history) + 2])
    wrong = Scripted(lambda history: [[7, 7]])
    assert answers.passes(right, [call]) == [1 + -(-(len(call.answer) - 1) // 3)]
    assert answers.passes(wrong, [call]) == [len(call.answer)]


def test_a_structure_helps(calls):
    drafter = TreeDrafter(None, blend_rescorer(V, None, HEADLESS), nodes=8, depth=8)
    kept = [one for one in calls if not isinstance(one, str)]
    free, bounded = (answers.per_pass(kept, drafter, **more) for more in ({}, {"start": structure.starting(V)}))
    assert all(bounded[kind] > 1.5 * free[kind] > 1 for kind in ("multiple", "parallel"))
