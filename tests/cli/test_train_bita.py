"""`rescore train bita`, from a folder and prompts to mask tokens that decode."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from support import tiny_transformers
from support.bita import plain_reading
from support.training import training_world

from rescore.decode.cli import main
from rescore.decode.models.bita import BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.lattice.dump import Dump

TEXTS = "--max-tokens 16 --threads 1 --dtype float32".split()
WORDS = "--masks 2 --prompt-tokens 4 --groups 8 --rounds 2 --every 10".split()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return training_world(tmp_path_factory.mktemp("bita"), "llama")


def train(world, out, kind: str, *words) -> int:
    asked = ["train", kind, str(world / "model"), "--prompts", str(world / "prompts.jsonl"), *TEXTS]
    return main([*asked, *map(str, words), "-o", str(out)])


@pytest.fixture(scope="module")
def trained(world):
    assert train(world, world / "out", "bita", *WORDS, "--json", world / "out.json") == 0
    return world / "out"


def test_the_folder_holds_tokens_and_the_curve(world, trained):
    found = json.loads((world / "out.json").read_text())
    assert found["bita"] == str(trained / "bita" / "tokens")
    assert found["parameters"] == 2 * 32 + 2 * 2 * 2 * 4 * 8  # masks; 2 layers of keys and values, 2 heads of width 8
    lines = [json.loads(line) for line in (trained / "bita" / "curve.jsonl").read_text().splitlines()]
    assert lines[0]["step"] == 0 and lines[-1]["step"] == lines[-1]["steps"]
    assert found["best"]["loss"] == min((line["loss"] for line in lines), key=sum)
    assert json.loads((trained / "bita" / "tokens" / "config.json").read_text())["base_model"] == "model"


def test_text_with_them_is_the_model_s_own(world, trained, capsys):
    asked = ["generate", "--model", str(world / "model"), "--max-tokens", "12", "w4 w5 w6"]
    assert main(asked) == 0
    plain = capsys.readouterr().out
    assert main([*asked, "--heads", str(trained / "bita" / "tokens")]) == 0
    assert capsys.readouterr().out == plain


def test_dumps_hold_what_the_masks_propose(world, trained, tmp_path):
    """Each row against the masks behind all of its text, read alone by the family's own code."""
    tokens = trained / "bita" / "tokens"
    words = f"--prompts {world / 'prompts.jsonl'} --kind greedy --top-k 5 --max-tokens 12 --limit 3 --dtype float32"
    model = ["--model", str(world / "model"), "--heads", str(tokens)]
    assert main(["dump", "make", *model, *words.split(), "-o", str(tmp_path / "dump")]) == 0
    dump = Dump.open(tmp_path / "dump")
    assert dump.header.heads == 3
    family = tiny_transformers.shared("llama")
    learned = BitaTokens.load(tokens, CausalLMTarget(family))
    for block in dump.blocks():
        prompt, text = block.prompt_tokens[: block.prompt_offsets[1]], block.tokens[: block.offsets[1]]
        for row in range(len(text)):
            logits = plain_reading(family, learned, [*prompt.tolist(), *text[:row].tolist()])
            assert block.topk_ids[row, 1:].tolist() == logits.topk(5).indices.tolist()


def test_heads_and_masks_learn_from_the_same_texts(world, trained, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (trained / "states").iterdir()}
    assert train(world, trained, "heads", "--slots", 2, "--rounds", 1, "--batch", 64) == 0
    assert {path: path.stat().st_mtime_ns for path in (trained / "states").iterdir()} == before
    assert (trained / "heads").exists() and (trained / "bita" / "tokens").exists()


def test_other_options_in_the_same_folder_are_refused(world, trained, capsys):
    assert train(world, trained, "bita", *WORDS, "--rate", 0.5) == 1
    assert "rate: expected 0.5, as requested, got 0.002 from the interrupted run" in capsys.readouterr().err
