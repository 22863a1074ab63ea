"""Plans: the pieces of inputs, their identities."""

import dataclasses
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from support import cli
from support.refusals import refused, refuses

from rescore.lm.build import inputs
from rescore.lm.build.inputs import Piece, ReadOptions, files_of, form_of, plan
from rescore.lm.build.tokens import numbered_tokens


def test_the_plan_of_several_files(tmp_path, monkeypatch):
    """Pieces of 40 tokens or of 10 bytes cover each file; one of no known length is one piece."""
    monkeypatch.setattr(inputs, "PIECE_TOKENS", 40)
    monkeypatch.setattr(inputs, "PIECE_BYTES", 10)
    np.save(tmp_path / "a.npy", np.zeros(100, np.uint16))
    np.zeros(50, np.uint32).tofile(tmp_path / "b.bin")
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(b"x" * 25))
    (tmp_path / "e.txt").write_bytes(b"x" * 25)
    (tmp_path / "f.jsonl").touch()
    found = plan([tmp_path / "*"], vocab_size=100_000, tokenizer=object())
    ends = {"a.npy": [40, 80, 100], "b.bin": [40, 50], "d.json.gz": [None], "e.txt": [10, 20, 25], "f.jsonl": [0]}
    assert [(Path(piece.path).name, piece.begin, piece.end) for piece in found] == [
        (name, begin, end) for name, own in ends.items() for begin, end in zip([0, *own], own)
    ]
    assert plan([tmp_path / "*"], vocab_size=100_000, tokenizer=object()) == found
    assert all(Piece(**json.loads(json.dumps(piece.to_json()))) == piece for piece in found)
    assert plan([tmp_path / "b.bin"], vocab_size=100_000, options=ReadOptions(dtype="uint16")) != found[3:5]


def test_changed_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    (piece,) = plan([tmp_path / "a.npy"], vocab_size=9)
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert plan([tmp_path / "a.npy"], vocab_size=9) != [piece]
    refuses(ValueError, lambda: next(numbered_tokens(piece, vocab_size=9, end_of_text=0)), "a.npy")


def test_text_needs_a_tokenizer(tmp_path):
    (tmp_path / "a.jsonl").touch()
    refuses(ValueError, lambda: plan([tmp_path / "a.jsonl"], vocab_size=9), "a.jsonl", "--tokenizer", "tokenizer.json")


def test_dumps_of_another_tokenizer(tmp_path):
    from rescore.lm.model.tokenizer import TextTokenizer

    tokenizer = TextTokenizer.open(cli.make_tokenizer(tmp_path / "t.json"))
    cli.make_dump(tmp_path / "dump")
    with refused(ValueError, "dump", "e3b0", "sha256", tokenizer.sha256):
        plan([tmp_path / "dump"], vocab_size=50, tokenizer=tokenizer)
    same = dataclasses.replace(tokenizer, sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert plan([tmp_path / "dump"], vocab_size=50, tokenizer=same)


@pytest.fixture
def folder(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "a.txt", "in/c.jsonl", "in/deep/d.jsonl", "odd[1].jsonl", "dump/dump.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_patterns(folder):
    def found(*patterns: str) -> list[str]:
        return [str(path.relative_to(folder)) for path in files_of([folder / pattern for pattern in patterns])]

    assert found("b.jsonl", "a.*") == ["b.jsonl", "a.jsonl", "a.txt"]
    assert found("?.jsonl") == ["a.jsonl", "b.jsonl"]
    assert found("**/[cd].jsonl") == ["in/c.jsonl", "in/deep/d.jsonl"]
    assert found("odd[1].jsonl") == ["odd[1].jsonl"]  # a file of that very name
    assert found("dum*", "i*/*.jsonl") == ["dump", "in/c.jsonl"]  # folders are left out, but for dumps
    assert files_of(["-"]) == [Path("-")]


def test_names_refused(folder):
    for name in ("none.jsonl", "*.zst", "i*"):
        with refused(FileNotFoundError, name):
            files_of([folder / name])
    refuses(ValueError, lambda: files_of([folder / "in"]), "in/*.json.gz'")
    refuses(ValueError, lambda: files_of([folder / "*.jsonl", folder / "in" / ".." / "a.jsonl"]), "a.jsonl")
    os.symlink(folder / "none", folder / "dangling.jsonl")
    assert files_of([folder / "dangling.jsonl"])  # opening it says what is wrong


FORMS = {
    **{"a.jsonl": "jsonl", "c4-train.00000-of-01024.json.gz": "jsonl", "a.b.json.zst": "jsonl", "-": "jsonl"},
    **{"a.txt": "lines", "a.txt.gz": "lines", "a.parquet": "parquet", "a.npy": "npy", "a.bin": "bin"},
}


@pytest.mark.parametrize("name, form", FORMS.items())
def test_forms(name, form):
    assert form_of(Path(name), ReadOptions()) == form
    assert form_of(Path(name), ReadOptions(documents="file", stdin="txt")) == (
        "txt" if form == "lines" or name == "-" else form
    )


@pytest.mark.parametrize("name", ["a", "a.csv", "a.gz", "a.npy.gz", ".jsonl"])
def test_forms_refused(name):
    refuses(ValueError, lambda: form_of(Path(name), ReadOptions()), name, "bz2")


@pytest.mark.parametrize(
    "option, value", [("text_field", ""), ("dtype", "int64"), ("documents", "word"), ("stdin", "npy")]
)
def test_options_refused(option, value):
    refuses(ValueError, lambda: ReadOptions(**{option: value}), option, value)


def test_options_are_those_of_the_command_line():
    from rescore.decode.cli import groups
    from rescore.lm.build import inputs

    assert groups.ID_DTYPES == inputs.DTYPES and groups.STDIN_FORMATS == inputs.STDIN_FORMATS
    assert groups.DOCUMENTS == inputs.DOCUMENTS
    assert {field.name for field in structs.fields(ReadOptions)} == {"text_field", "documents", "dtype", "stdin"}
