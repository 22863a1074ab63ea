"""What verbs write: places that cannot be written are refused before the work, and what was written is named."""

import argparse
import io
import os
import resource
import sys
from functools import partial

import pytest
from support import cli
from support.refusals import assert_named

from rescore.decode.cli import parser
from rescore.decode.cli.values import Written

WRITTEN = {"--out", "--json", "--markdown", "--arpa", "--symbols", "--drafts", "--per-line", "--per-token", "--work"}


def verbs(one=None, words=()):
    """The words and the parser of every verb."""
    one = one or parser()
    inner = [action for action in one._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inner:
        for name, own in action.choices.items():
            yield from verbs(own, (*words, name))
    if not inner:
        yield words, one


def given(action: argparse.Action, value: str) -> list[str]:
    return [*action.option_strings[-1:], value]


def least(verb: argparse.ArgumentParser, but: argparse.Action) -> list[str]:
    """Values of all arguments that a verb requires, but one."""
    needed = [action for action in verb._actions if action.required and action is not but]
    needed += [group._group_actions[0] for group in verb._mutually_exclusive_groups if group.required]
    words = []
    for action in needed:
        suffixes = action.type.suffixes if isinstance(action.type, Written) else ()
        words += given(action, next(iter(action.choices or ()), "1" + (suffixes or ("",))[0]))
    return words


OUTPUTS = [
    (words, verb, action) for words, verb in verbs() for action in verb._actions if isinstance(action.type, Written)
]


@pytest.mark.parametrize("words, verb", list(verbs()), ids=lambda one: " ".join(one) if isinstance(one, tuple) else "")
def test_all_outputs_are_known_as_such(words, verb):
    named = {action.option_strings[-1] for action in verb._actions if action.option_strings} & WRITTEN
    assert named <= {
        action.option_strings[-1] for name, _, action in OUTPUTS if name == words and action.option_strings
    }
    assert words in (("completion",), ("help",)) or "--json" in named


@pytest.mark.parametrize(
    "words, verb, action", OUTPUTS, ids=[f"{' '.join(words)} {action.dest}" for words, _, action in OUTPUTS]
)
def test_a_place_that_is_none_is_said_before_all_else(capsys, tmp_path, monkeypatch, words, verb, action):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    place = tmp_path / "file" / ("x" + (action.type.suffixes or ("",))[0])
    cli.refusal(
        capsys, *words, *least(verb, action), *given(action, str(place)), status=2, names=[place, tmp_path / "file"]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


LONG = "n" * 300


@pytest.mark.parametrize(
    "words, status, told",
    [
        ("env --json folder", 2, ["folder", "expected a file", "got a folder"]),
        (f"env --json new/{LONG}", 1, [f"new/{LONG}: cannot be written", "too long"]),
        ("lm count x -o file", 2, ["file: expected a folder"]),
        ("dump make --model x --prompts x --kind greedy -o file", 2, ["expected a folder"]),
        ("lm build x -o x.arpa --json ./x.arpa", 2, ["--out, --json", "x.arpa"]),
        ("bench lm --lm x --text x --json - --markdown -", 2, ["--markdown, --json"]),
        ("lm build x -o - --json /dev/stdout", 2, ["--out, --json"]),
        ("run x --drafts -", 2, ["--drafts", "'-'"]),
        ("report x -o report.pdf", 2, ["'report.pdf'", ".html"]),
    ],
)
def test_places_that_cannot_be_written(capsys, tmp_path, monkeypatch, words, status, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    cli.refusal(capsys, words, status=status, names=told)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_disk_that_takes_nothing_more(tmp_path):
    """Every write fails, opening does not."""
    place, limits = tmp_path / "new" / "o.json", resource.getrlimit(resource.RLIMIT_FSIZE)
    full = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, limits[1]))
    process = cli.start("oracle", "none", "--json", place, preexec_fn=full)
    err = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 1
    assert_named(err, [place])
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may replace all files")
def test_a_file_that_is_read_only(capsys, tmp_path):
    (tmp_path / "o.json").touch(0o444)
    cli.refusal(capsys, f"env --json {tmp_path}/o.json", names=[tmp_path / "o.json"])


def test_parquet_without_its_package(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    cli.refusal(capsys, f"run {tmp_path}/none --drafts {tmp_path}/d.parquet", names=["Parquet", "'pyarrow"])


def test_what_was_written_is_named(world, capsys, tmp_path):
    files = [tmp_path / "new" / name for name in ("lm.arpa", "lm.json")]
    told = cli.done(capsys, f"lm convert {world}/lm.ngram", files[0], "--json", files[1])
    assert told.out.endswith(f"\nwrote {files[0]}, {files[1]}\n") and all(file.exists() for file in files)
    told = cli.done(capsys, f"lm convert {world}/lm.ngram - --json", files[1])
    assert told.out.endswith("\\end\\\n") and "wrote" not in told.err


CLOSED = [
    ("generate --model none -", 0, "standard input"),
    ("run x --lm -", 0, "x"),
    ("env --json -", 1, "standard output"),
]


@pytest.mark.parametrize("words, number, name", CLOSED)
def test_streams_that_are_closed(tmp_path, words, number, name):
    process = cli.start(*words.split(), preexec_fn=lambda: os.close(number), cwd=tmp_path, stdin=None)
    err = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 1 and err.startswith(f"rescore: {name}: ") and err.count("\n") == 1


def test_messages_do_not_go_to_standard_output(tmp_path):
    """Not even if standard error is closed, and no file takes its number."""
    process = cli.start("oracle", tmp_path / "none", stderr=None, preexec_fn=lambda: os.close(2))
    assert process.communicate(timeout=120)[0] == b"" and process.returncode == 1


def piped(content: bytes, *, terminal: bool = False) -> io.TextIOWrapper:
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    stream = open(read)
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    return stream


def test_standard_input_that_is_no_text(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", piped(b"caf\xe9"))
    cli.refusal(capsys, "generate --model x -", names=["standard input", "UTF-8", "0xe9", "3"])
    cli.refusal(capsys, "generate --model x one", os.fsdecode(b"\xff"), names=["prompt 2", "UTF-8", "0xff"])


def test_a_terminal_is_told_how_its_input_ends(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", piped(b"", terminal=True))
    result = cli.call(capsys, "lm info -")
    assert result.status == 1 and "Ctrl-D" in result.err.splitlines()[0] and "standard input" in result.err
