"""From a small copy of the data's layout to tokenizer, token files and prompts."""

from __future__ import annotations

import gzip
import json
import random

import numpy as np
import pytest
from support.tools import load_tool

pytest.importorskip("tokenizers")

from tokenizers import Tokenizer

prepare_demo = load_tool("train/prepare_demo")


SYLLABLES = ("ba", "do", "ki", "lu", "me", "na", "ro", "si")


def words(seed: str, count: int) -> str:
    draw = random.Random(seed)
    return " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 3))) for _ in range(count))


@pytest.fixture
def data(tmp_path):
    """Three documents a split; GSM8K has no valid split, SciTLDR calls its own dev."""
    for task, folder in prepare_demo.TASKS.items():
        splits = {"gsm8k": ("train", "test"), "scitldr": ("train", "dev", "test")}.get(task, ("train", "valid", "test"))
        for split in splits:
            rows = []
            for i in range(60 if task == "gsm8k" else 3):
                name = f"{task}-{split}-{i}"
                body = (
                    {"question": words(name, 8), "answer": words(name + "a", 5)}
                    if task == "gsm8k"
                    else {"text": words(name, 400), "source": "go" if i == 2 else "x"}
                )
                if task == "scitldr":
                    body = {"source": words(name, 30), "targets": [f" {words(name + 't', 6)} ", "other"]}
                rows.append(json.dumps({"id": name, **body}))
            path = tmp_path / "data" / folder / f"{split}.jsonl.gz"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(gzip.compress("\n".join(rows).encode()))
    return tmp_path / "data"


def prepare(data, monkeypatch, out: str = "out", more: str = ""):
    folder = data.parent / out
    monkeypatch.setattr("sys.argv", ["prepare_demo.py", str(data), str(folder), *f"--vocab-size 300 {more}".split()])
    prepare_demo.main()
    return folder


def test_tokens_and_prompts_are_the_texts(data, monkeypatch):
    out = prepare(data, monkeypatch)
    tokenizer = Tokenizer.from_file(str(out / "tokenizer.json"))
    end = tokenizer.token_to_id(prepare_demo.END_OF_TEXT)
    assert tokenizer.get_vocab_size() == 300
    for task in prepare_demo.TASKS:
        train = np.load(out / f"train.{task}.npy")
        assert train.dtype == np.uint16 and train[0] == end and train[-1] == end
        texts = [prompt + text for _, prompt, text in prepare_demo.documents(data, task, "train")]
        pieces = np.split(train[1:-1], np.flatnonzero(train[1:-1] == end))
        assert [tokenizer.decode(piece.tolist()) for piece in pieces] == texts
    rows = [json.loads(line) for line in (out / "prompts.test.jsonl").read_text().splitlines()]
    originals = {
        name: (prompt, text)
        for task in prepare_demo.TASKS
        for name, prompt, text in prepare_demo.documents(data, task, "test")
    }
    assert {row["task"] for row in rows} == set(prepare_demo.TASKS)
    for row in rows:
        name = row["id"].split("@")[0]
        prompt, text = originals[name]
        got_prompt, got_reference = (tokenizer.decode(row[part]) for part in ("prompt", "reference"))
        if row["task"] in ("gsm8k", "scitldr"):
            assert row["prompt"][0] == end and prompt.endswith(got_prompt) and text.startswith(got_reference)
            assert (row["reference"][-1] == end) == (got_reference == text)
        else:
            assert got_prompt + got_reference in text
            assert len(row["prompt"]) == 64 and len(row["reference"]) == 96


def test_valid_questions_are_held_out_of_training(data):
    train, valid = (
        {name for name, _, _ in prepare_demo.documents(data, "gsm8k", split)} for split in ("train", "valid")
    )
    assert valid and not train & valid and len(train | valid) == 60


def test_text_that_may_not_be_shipped_is_not_in_the_test_split(data):
    found = {
        split: [name for name, _, _ in prepare_demo.documents(data, "techdocs", split)] for split in ("train", "test")
    }
    assert found == {"train": [f"techdocs-train-{i}" for i in range(3)], "test": ["techdocs-test-0", "techdocs-test-1"]}


def test_the_same_again(data, monkeypatch):
    first, second = prepare(data, monkeypatch), prepare(data, monkeypatch, "again")
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_errors(data, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        prepare(data, monkeypatch, more="--vocab-size 70000")
    assert (
        "--vocab-size: expected 257..65536 (bytes and end-of-text; ids are stored in 16 bits), got 70000"
        in capsys.readouterr().err
    )
    (data / "gsm8k" / "test.jsonl.gz").unlink()
    with pytest.raises(SystemExit, match="test.jsonl.gz: no such file; expected DATA to hold the folders text_fiction"):
        prepare(data, monkeypatch)
    short = gzip.compress(json.dumps({"id": "1", "text": "ba do", "source": "x"}).encode())
    (data / "text_fiction" / "train.jsonl.gz").write_bytes(short)
    with pytest.raises(
        SystemExit, match="fiction: expected a document of more than 160 tokens to cut prompts from, got none"
    ):
        prepare(data, monkeypatch)
