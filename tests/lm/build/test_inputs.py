"""Names and patterns of inputs."""

import dataclasses
import os
from pathlib import Path

import pytest
from support.refusals import refuses

from rescore.lm.build.inputs import ReadOptions, files_of, form_of


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
    refuses(FileNotFoundError, lambda: files_of([folder / "none.jsonl"]), "such")
    refuses(FileNotFoundError, lambda: files_of([folder / "*.zst"]), "pattern")
    refuses(FileNotFoundError, lambda: files_of([folder / "i*"]), "pattern")
    refuses(ValueError, lambda: files_of([folder / "in"]), "in/*.json.gz'")
    refuses(ValueError, lambda: files_of([folder / "*.jsonl", folder / "in" / ".." / "a.jsonl"]), "a.jsonl")
    os.symlink(folder / "none", folder / "dangling.jsonl")
    assert files_of([folder / "dangling.jsonl"])  # opening it says what is wrong


FORMS = {
    "a.jsonl": "jsonl",
    "c4-train.00000-of-01024.json.gz": "jsonl",
    "a.b.json.zst": "jsonl",
    "a.txt": "lines",
    "a.txt.gz": "lines",
    "a.parquet": "parquet",
    "a.npy": "npy",
    "a.bin": "bin",
    "-": "jsonl",
}


@pytest.mark.parametrize("name, form", FORMS.items())
def test_forms(name, form):
    assert form_of(Path(name), ReadOptions()) == form
    assert form_of(Path(name), ReadOptions(documents="file", stdin="txt")) == (
        "txt" if form == "lines" or name == "-" else form
    )


@pytest.mark.parametrize("name", ["a", "a.csv", "a.gz", "a.npy.gz", "a.parquet.zst", ".jsonl", "a.tar.gz"])
def test_forms_refused(name):
    refuses(ValueError, lambda: form_of(Path(name), ReadOptions()), name, "bz2")


def test_a_dump(folder):
    assert form_of(folder / "dump", ReadOptions()) == "dump"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"text_field": ""}, ["text_field"]),
        ({"dtype": "int64"}, ["dtype", "uint16", "uint32", "'int64'"]),
        ({"documents": "word"}, ["documents", "'word'"]),
        ({"stdin": "npy"}, ["stdin", "'npy'"]),
    ],
)
def test_options_refused(options, message):
    refuses(ValueError, lambda: ReadOptions(**options), *message)


def test_options_are_those_of_the_command_line():
    from rescore.decode.cli import groups
    from rescore.lm.build import inputs

    assert groups.ID_DTYPES == inputs.DTYPES and groups.STDIN_FORMATS == inputs.STDIN_FORMATS
    assert groups.DOCUMENTS == inputs.DOCUMENTS
    assert {field.name for field in dataclasses.fields(ReadOptions)} == {"text_field", "documents", "dtype", "stdin"}
