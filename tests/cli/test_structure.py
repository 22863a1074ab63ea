"""`rescore generate` and `bench decode` under a structure: refusals on a tiny model, texts of a real one."""

import json
import re

import pytest
import torch
from support import cli, tiny_transformers
from support.paths import ROOT

V, PATTERN = 49_160, "[ab]{5} (x|y)z"
PROPERTIES = {"city": {"type": "string", "maxLength": 20}, "sunny": {"type": "boolean"}}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": [*PROPERTIES], "additionalProperties": False}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A tiny model with random weights and the demo's tokenizer."""
    folder = tmp_path_factory.mktemp("structure")
    torch.manual_seed(0)
    model = tiny_transformers.build("llama", vocab_size=V, eos_token_id=2)
    model.save_pretrained(folder / "model")
    (folder / "model" / "tokenizer.json").write_bytes((ROOT / "data/demo/tokenizer.json").read_bytes())
    (folder / "schema.json").write_text(json.dumps(SCHEMA))
    (folder / "bad.json").write_text('{"type": "nothing"}')
    tool = {"name": "look", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}
    (folder / "tools.json").write_text(json.dumps([{"type": "function", "function": tool}]))
    return folder


def words(world, *more) -> list:
    return ["generate", "--model", world / "model", "--max-tokens", 40, "--threads", 1, *more, "where"]


@pytest.mark.parametrize(
    "option, wanted", [("tools", re.escape('{"name": "look", "arguments": {}}')), ("regex", PATTERN)]
)
def test_texts_are_of_the_structure(world, capsys, option, wanted):
    value = PATTERN if option == "regex" else world / "tools.json"
    report = cli.figures(capsys, *words(world, f"--{option}", value, "--drafter", "blend"))
    assert re.fullmatch(wanted, report["texts"][0]["text"])


def test_drafts_change_nothing(world, capsys):
    """Also of a drafter that knows no structures."""
    found = [
        cli.figures(capsys, *words(world, "--json-schema", world / "schema.json", "--drafter", drafter))["texts"][0]
        for drafter in ("none", "blend", "prompt-lookup")
    ]
    assert found[0]["text"].startswith('{"city": "') and found[0]["tokens"] == found[1]["tokens"] == found[2]["tokens"]


def test_refusals(world, capsys):
    cli.refusal(capsys, *words(world, "--regex", "("), names=["--regex"])
    bad = ("--json-schema", world / "bad.json")
    cli.refusal(capsys, *words(world, *bad), names=[*bad, "nothing"])


@pytest.mark.slow
def test_a_real_model_writes_json(world, smollm2, capsys):
    question = "Is it sunny in Rome? Answer with the city and whether it is sunny, as JSON."
    arguments = ("generate", "--model", smollm2, "--chat", "--json-schema", world / "schema.json", question)
    drafted = cli.figures(capsys, *arguments)
    value = json.loads(drafted["texts"][0]["text"])
    assert set(value) == {"city", "sunny"} and isinstance(value["sunny"], bool)
    plain = cli.figures(capsys, *arguments[:-1], "--drafter", "none", question)
    assert plain["texts"][0]["text"] == drafted["texts"][0]["text"]
