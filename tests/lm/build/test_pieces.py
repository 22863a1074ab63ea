"""Plans: the pieces of inputs, their identities."""

import dataclasses
import gzip
import json
import os

import numpy as np
import pytest
from support import cli
from support.refusals import refused, refuses

from rescore.lm.build import inputs
from rescore.lm.build.inputs import Piece, ReadOptions, plan
from rescore.lm.build.tokenize import tokens_of


def test_the_plan_of_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PIECE_TOKENS", 40)
    monkeypatch.setattr(inputs, "PIECE_BYTES", 10)
    np.save(tmp_path / "a.npy", np.zeros(100, np.uint16))
    np.zeros(50, np.uint32).tofile(tmp_path / "b.bin")
    (tmp_path / "c.jsonl").write_bytes(b"x" * 25)
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(b"x" * 25))
    (tmp_path / "e.txt").write_bytes(b"x" * 25)
    (tmp_path / "f.jsonl").touch()
    found = plan([tmp_path / "*"], vocab_size=100_000, tokenizer=object())
    name = {str(path): path.name for path in tmp_path.iterdir()}
    assert [(name[piece.path], piece.form, piece.begin, piece.end, piece.is_text) for piece in found] == [
        ("a.npy", "npy", 0, 40, False),
        ("a.npy", "npy", 40, 80, False),
        ("a.npy", "npy", 80, 100, False),
        ("b.bin", "bin", 0, 40, False),
        ("b.bin", "bin", 40, 50, False),
        ("c.jsonl", "jsonl", 0, 10, True),
        ("c.jsonl", "jsonl", 10, 20, True),
        ("c.jsonl", "jsonl", 20, 25, True),
        ("d.json.gz", "jsonl", 0, None, True),
        ("e.txt", "lines", 0, 10, True),
        ("e.txt", "lines", 10, 20, True),
        ("e.txt", "lines", 20, 25, True),
        ("f.jsonl", "jsonl", 0, 0, True),
    ]
    assert [(piece.field, piece.dtype) for piece in found[2:6]] == [
        (None, None),
        (None, "uint32"),
        (None, "uint32"),
        ("text", None),
    ]
    assert plan([tmp_path / "*"], vocab_size=100_000, tokenizer=object()) == found
    assert all(Piece(**json.loads(json.dumps(piece.to_json()))) == piece for piece in found)
    assert plan([tmp_path / "b.bin"], vocab_size=100_000, options=ReadOptions(dtype="uint16")) != found[3:5]


def test_standard_input_has_no_identity():
    (piece,) = plan(["-"], vocab_size=9, options=ReadOptions(stdin="bin"))
    assert piece == Piece(path="-", form="bin", dtype="uint16") and piece.size is None


def test_changed_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    (piece,) = plan([tmp_path / "a.npy"], vocab_size=9)
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert plan([tmp_path / "a.npy"], vocab_size=9) != [piece]
    refuses(ValueError, lambda: next(tokens_of(piece, vocab_size=9, end_of_text=0)), "a.npy")


def test_refused_before_any_work(tmp_path):
    (tmp_path / "a.jsonl").touch()
    refuses(ValueError, lambda: plan([tmp_path / "a.jsonl"], vocab_size=9), "a.jsonl", "--tokenizer", "tokenizer.json")
    with pytest.raises(FileNotFoundError):
        plan([tmp_path / "b.npy"], vocab_size=9)


def test_dumps_of_another_tokenizer(tmp_path):
    from rescore.lm.model.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.open(cli.make_tokenizer(tmp_path / "t.json"))
    cli.make_dump(tmp_path / "dump")
    with refused(ValueError, "dump", "e3b0", "sha256", tokenizer.sha256):
        plan([tmp_path / "dump"], vocab_size=50, tokenizer=tokenizer)
    same = dataclasses.replace(tokenizer, sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert plan([tmp_path / "dump"], vocab_size=50, tokenizer=same)
