"""Folders of heads, exits and mask tokens that are not what they say: what is refused, and what the error names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.bita import tokens_for
from support.refusals import refuses
from support.tiny_transformers import V, shared

from rescore.decode.models.bita import BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.models.exit_heads import ExitForm, ExitHeads


class Kind(NamedTuple):
    config: str
    tensors: str
    made: Callable[[], Any]
    load: Callable[[Path], object]


TABLE = torch.randn(23, 6)
SHARED = dict(embedding=TABLE, table=TABLE)
IDS = torch.tensor([1, 4, 5, 9, 22])
EXITS = ExitForm(exits=(2, 4), depth=5, width=6)
KINDS = {
    "heads": Kind(
        "config.json",
        "heads.safetensors",
        lambda: ConditionedHeads(slots=3, layers=2, vocabulary=IDS, **SHARED),
        lambda folder: ConditionedHeads.load(folder, **SHARED),
    ),
    "exits": Kind(
        "exits.json",
        "exits.safetensors",
        lambda: ExitHeads(EXITS),
        lambda folder: ExitHeads.load(folder, depth=5, width=6),
    ),
    "bita": Kind(
        "config.json",
        "bita.safetensors",
        lambda: tokens_for("llama"),
        lambda folder: BitaTokens.load(folder, CausalLMTarget(shared("llama"))),
    ),
}

CONFIGS = [
    ("heads", {"format": "other"}, ["'rescore heads'", "'other'"]),
    ("heads", {"version": 2}, ["version", "1", "2"]),
    ("heads", {"slots": True}, ["slots", "True"]),
    ("heads", {"slots": 10**12}, ["slots", "64", 10**12]),
    ("heads", {"layers": -1}, ["layers", "0", "-1"]),
    ("heads", {"layers": None}, ["layers", "None"]),
    ("heads", {"layers": 3}, ["22", "'heads.0.blocks.2.linear.bias'"]),
    ("heads", {"slots": 2}, ["11", "'heads.2.blocks.0.linear.bias'"]),
    ("heads", {"width": 8}, ["6", "8"]),
    ("heads", {"vocab_size": 24}, ["vocab_size", "23", "24"]),
    ("heads", {"draft_vocabulary": 4}, ["draft_vocabulary", "[4]", "torch.int32", "[5]"]),
    ("heads", {"draft_vocabulary": 99}, ["draft_vocabulary", "23", "99"]),
    ("exits", {"format": "other"}, ["'rescore exits'", "'other'"]),
    ("exits", {"version": 2}, ["version", "1", "2"]),
    ("exits", {"exits": "24"}, ["exits", "'24'"]),
    ("exits", {"exits": [2, None]}, ["exits[1]", "None"]),
    ("exits", {"exits": [True, 4]}, ["exits[0]", "True"]),
    *(("exits", {"exits": no}, ["exits", str(no)[1:-1]]) for no in ([], [4, 2], [2, 5])),
    ("exits", {"depth": 10**9}, ["depth", "4096", 10**9]),
    ("exits", {"width": "6"}, ["width", "'6'"]),
    ("exits", {"depth": 6}, ["5", "6"]),
    ("exits", {"width": 8}, ["6", "8"]),
    ("exits", {"exits": [1, 2, 4]}, ["translation", "[3, 6, 6]", "torch.float16", "[2, 6, 6]"]),
    ("bita", {"format": "other"}, ["'rescore bita'", "'other'"]),
    ("bita", {"masks": 0}, ["masks", "1", "0"]),
    ("bita", {"masks": True}, ["masks", "True"]),
    ("bita", {"prompts": 10**9}, ["prompts", "4096", 10**9]),
    ("bita", {"masks": 4}, ["masks", "[4, 32]"]),
    ("bita", {"vocab_size": V + 1}, ["vocab_size", V, V + 1]),
    *(("bita", {"vocab_size": wrong}, ["vocab_size", repr(wrong)]) for wrong in ("37", True)),
    ("bita", {"width": 48}, ["32", "48"]),
    ("bita", {"layers": [[4, 8, 8]] * 900}, ["layers"]),
    ("bita", {"layers": "x" * 10**6}, ["layers"]),
]


@pytest.mark.parametrize("kind, changed, named", CONFIGS, ids=[f"{kind} {str(one)[:40]}" for kind, one, _ in CONFIGS])
def test_configs(tmp_path, kind, changed, named):
    config, _, made, load = KINDS[kind]
    made().save(tmp_path, {})
    path = tmp_path / config
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    refuses(ValueError, lambda: load(tmp_path), *named)


TENSORS = [
    *(
        ("heads", {"draft_vocabulary": torch.tensor(ids, dtype=torch.int32)}, ["draft_vocabulary", "23"])
        for ids in ([1, 4, 4, 9, 22], [1, 4, 5, 9, 23], [-1, 4, 5, 9, 22])
    ),
    ("heads", {"draft_vocabulary": IDS.float()}, ["draft_vocabulary", "int32", "[5]", "torch.float32"]),
    ("heads", {"heads.1.input.weight": torch.zeros(6, 6)}, ["heads.1.input.weight", "[6, 12]", "[6, 6]"]),
    ("heads", {"heads.1.input.weight": torch.full((6, 12), torch.nan)}, ["heads.1.input.weight", "NaN"]),
    ("heads", {"heads.1.input.weight": torch.zeros(6, 12).int()}, ["heads.1.input.weight", "[6, 12]", "int32"]),
    ("exits", {"bias": torch.tensor([1, 2])}, ["bias", "[2]", "torch.int64"]),
    ("exits", {"offset": torch.full((2, 6), torch.inf)}, ["offset", "infinity"]),
    ("exits", {"classifier": torch.zeros(6, 2)}, ["classifier", "[2, 6]", "torch.float32", "[6, 2]"]),
    ("exits", {"more": torch.zeros(1)}, ["4", "'more'"]),
    ("bita", {"more": torch.zeros(1)}, ["'more'"]),
    ("bita", {"keys.1": None}, ["keys.1"]),
    ("bita", {"masks": torch.full((3, 32), torch.nan)}, ["masks", "NaN"]),
    ("bita", {"values.0": torch.zeros(2, 4, 8).int()}, ["values.0", "int32"]),
]


@pytest.mark.parametrize("kind, changed, named", TENSORS, ids=[f"{kind} {next(iter(one))}" for kind, one, _ in TENSORS])
def test_tensors(tmp_path, kind, changed, named):
    _, file, made, load = KINDS[kind]
    made().save(tmp_path, {})
    tensors = {**load_file(tmp_path / file), **changed}
    save_file({name: one for name, one in tensors.items() if one is not None}, tmp_path / file)
    refuses(ValueError, lambda: load(tmp_path), *named)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_do_not_read(tmp_path, kind):
    config, tensors, made, load = KINDS[kind]
    made().save(tmp_path, {})
    (tmp_path / tensors).write_bytes(b"\xff" * 30)
    refuses(ValueError, lambda: load(tmp_path), tensors)
    (tmp_path / tensors).unlink()
    refuses(FileNotFoundError, lambda: load(tmp_path), tensors)
    (tmp_path / config).unlink()
    refuses(FileNotFoundError, lambda: load(tmp_path), config)


def test_mask_tokens_of_another_model(tmp_path):
    tokens_for("llama").save(tmp_path, {})
    refuses(ValueError, lambda: BitaTokens.load(tmp_path, CausalLMTarget(shared("llama-tied"))))
