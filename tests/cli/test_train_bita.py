"""`rescore train bita`, from a folder and prompts to mask tokens that decode."""

import json

import pytest
from support import cli
from support.training import training_world

from rescore.decode.cli import main

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
    asked = ("generate", "--model", world / "model", "--max-tokens", 12, "w4 w5 w6")
    assert cli.done(capsys, *asked, "--heads", trained / "bita" / "tokens").out == cli.done(capsys, *asked).out


def test_heads_and_masks_learn_from_the_same_texts(world, trained, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (trained / "states").iterdir()}
    assert train(world, trained, "heads", "--slots", 2, "--rounds", 1, "--batch", 64) == 0
    assert {path: path.stat().st_mtime_ns for path in (trained / "states").iterdir()} == before
    assert (trained / "heads").exists() and (trained / "bita" / "tokens").exists()
