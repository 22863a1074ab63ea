"""The command line as a process: signals, pipes, full disks, streams that are closed, places that cannot be written."""

import argparse
import io
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file
from support import cli, dumps
from support.refusals import assert_named

from rescore import _core
from rescore.decode.cli import parser
from rescore.decode.cli.values import Written
from rescore.lattice.extras import remedy


def test_debug_shows_the_traceback(tmp_path):
    with pytest.raises(FileNotFoundError):
        cli.main(["oracle", str(tmp_path / "none"), "--debug"])


def test_unexpected_errors_are_told_as_such(world, capsys, monkeypatch):
    from rescore.decode.cli.verbs import oracle

    monkeypatch.setattr(oracle, "tables", lambda *_: {}["missing"])
    cli.refusal(capsys, f"oracle {world}/dump", names=["unexpected KeyError", "'missing'", "--debug"])


def test_packages_that_are_not_there_are_named():
    code = "import sys; sys.modules['torch'] = None; from rescore.decode.cli import main; sys.exit(main(sys.argv[1:]))"
    words = [sys.executable, "-c", code, "generate", "--model", "smollm2", "hello"]
    ran = subprocess.run(words, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr == f"rescore: this needs the package torch: {remedy('torch')}\n"


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A dump that takes a while."""
    folder, (made, *_) = tmp_path_factory.mktemp("large") / "dump", dumps.sequences(count=5)
    long = {name: np.concatenate([made[name]] * 400) for name in ("tokens", "topk_ids", "topk_logp", "entropy")}
    dumps.write(folder, made=[{**made, **long}] * 6)
    return folder


@pytest.mark.parametrize(
    "number, status, told",
    [(signal.SIGINT, 130, "rescore: interrupted; no incomplete files were left behind\n"), (signal.SIGTERM, 143, "")],
)
def test_signals_leave_nothing_half_written(world, large, tmp_path, number, status, told):
    written = f"--drafts {tmp_path}/d.jsonl --json {tmp_path}/r.json"
    process = cli.start(*f"run {large} --lm {world}/lm.ngram --paths 200 {written}".split())
    while not any(tmp_path.iterdir()):  # the draft file under its temporary name
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err.decode()) == (status, b"", told)
    assert not list(tmp_path.iterdir())


SWALLOWING = """
import os, signal, sys, time
from rescore.decode.cli import main
from rescore.decode.cli.verbs import oracle

def working(*_):
    try:  # as C code that clears what is raised below it
        os.kill(os.getpid(), int(sys.argv[1]))
        time.sleep(60)
    except BaseException:
        pass
    try:
        while True:
            time.sleep(0.01)
    finally:
        time.sleep(1)  # cleaning up is not interrupted
        print("cleaned", file=sys.stderr)

oracle.tables = working
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_are_not_lost_where_their_exceptions_are(world, number, status):
    words = [sys.executable, "-c", SWALLOWING, str(int(number)), "oracle", f"{world}/dump"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=120, preexec_fn=cli.interruptible)
    assert ran.returncode == status and ran.stderr.startswith("cleaned\n") and "Traceback" not in ran.stderr


def interrupted(process: subprocess.Popen) -> str:
    """What it says when interrupted. An interrupt that falls between Python's last look for one and a read that waits
    is not seen before the next: pressed again, as at a terminal.
    """
    for _ in range(4):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=30)[1].decode()
    raise AssertionError("not ended by four interrupts")


def test_interrupted_while_reading(tmp_path):
    """A model is built from a pipe that says nothing more."""
    tokenizer = cli.make_tokenizer(tmp_path / "t.json")
    os.mkfifo(tmp_path / "a.jsonl")
    process = cli.start("lm", "build", tmp_path / "a.jsonl", "--tokenizer", tokenizer, "-o", tmp_path / "lm.ngram")
    with open(tmp_path / "a.jsonl", "w") as pipe:
        pipe.write('{"text": "w1 w2"}\n')
        pipe.flush()
        assert interrupted(process) == "rescore: interrupted; no incomplete files were left behind\n"
    assert process.returncode == 130 and not (tmp_path / "lm.ngram").exists()


@pytest.mark.parametrize(
    "call",
    [
        "run DUMP",
        "run DUMP --json -",
        "run --help",
        "lm convert LM -",
        "lm build DUMP --vocab-size 50 --end-of-text 0 -o -",
    ],
)
def test_readers_that_leave(world, call):
    words = call.replace("DUMP", f"{world}/dump").replace("LM", f"{world}/lm.ngram").split()
    read, write = os.pipe()
    os.close(read)
    process = cli.start(*words, stdout=write)
    os.close(write)
    err = process.communicate(timeout=120)[1]
    assert process.returncode == 0 and b"rror" not in err and b"Traceback" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_full_disks(world, tmp_path):
    (tmp_path / "d.jsonl").symlink_to("/dev/full")
    oracle, run = ("oracle", world / "dump"), ("run", world / "dump", "--lm", world / "lm.ngram")
    for words in (oracle, (*oracle, "--json", "/dev/full"), (*run, "--drafts", tmp_path / "d.jsonl")):
        with open("/dev/full", "w") as full:
            process = cli.start(*words, stdout=full if words == oracle else subprocess.PIPE)
            err = process.communicate(timeout=120)[1].decode()
        assert (process.returncode, err.count("\n")) == (1, 1)
        assert_named(err, ["device"])
    assert os.path.exists("/dev/full") and not os.path.isfile("/dev/full")


def test_standard_output_by_name(world, tmp_path):
    """It is -, also if it is a file, which must not be replaced."""
    with open(tmp_path / "out", "wb") as out:
        process = cli.start("oracle", world / "dump", "--json", "/dev/stdout", stdout=out)
        assert process.communicate(timeout=120)[1] == b"" and process.returncode == 0
    assert (tmp_path / "out").read_bytes().startswith(b'{\n  "format"')


def test_names_that_are_no_text(world, tmp_path):
    """Names are bytes; a terminal may know ASCII alone."""
    path = tmp_path / os.fsdecode(b"d\xff\xc3\xa9")
    path.symlink_to(world / "dump")
    env = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    for words in (["run", path, "--drafts", f"{path}.parquet"], ["dump", "info", path]):
        process = cli.start(*words, env=env)
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, b"") and out.isascii()


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
    known = {action.option_strings[-1] for name, _, action in OUTPUTS if name == words and action.option_strings}
    assert named <= known
    assert words in (("completion",), ("help",)) or "--json" in named


@pytest.mark.parametrize(
    "words, verb, action", OUTPUTS, ids=[f"{' '.join(words)} {action.dest}" for words, _, action in OUTPUTS]
)
def test_a_place_that_is_none_is_said_before_all_else(capsys, tmp_path, monkeypatch, words, verb, action):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    place = tmp_path / "file" / ("x" + (action.type.suffixes or ("",))[0])
    call = (*words, *least(verb, action), *given(action, str(place)))
    cli.refusal(capsys, *call, status=2, names=[place, tmp_path / "file"])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


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


LINKED = {
    "lm build TEXT --order 2 -o": ["lm.arpa", "lm.ngram", "lm.fst", "lm.arpa.gz"],
    "lm build TEXT --order 2 -o lm.ngram --json": ["lm.json"],
    "lm convert LM": ["b.ngram", "b.lookup.bin"],
    "lm score LM TEXT --per-line": ["lines.tsv"],
    "lm count TOKENS --vocab-size 9 --end-of-text 0 -o": ["counts"],
    "dump reduce LOGITS --kind greedy --top-k 4 -o": ["dump"],
    "env --json": ["env.json"],
}


@pytest.fixture
def sources(tmp_path, capsys):
    """Inputs by the words that stand for them."""
    (tmp_path / "a.txt").write_text("a b c\nb c d\n" * 5)
    cli.done(capsys, f"lm build {tmp_path}/a.txt --order 3 -o {tmp_path}/a.ngram")
    np.array([1, 2, 3, 0] * 9, np.uint16).tofile(tmp_path / "a.bin")
    logits = np.random.default_rng(0).normal(size=(9, 2, 9)).astype(np.float32)
    texts = {"tokens": logits[:, 0].argmax(-1), "offsets": np.array([0, 9])}
    save_file({"logits": logits, **texts}, tmp_path / "a.safetensors")
    names = {"TEXT": "a.txt", "LM": "a.ngram", "TOKENS": "a.bin", "LOGITS": "a.safetensors"}
    return {word: tmp_path / name for word, name in names.items()}


@pytest.mark.parametrize("words, name", [(words, name) for words, names in LINKED.items() for name in names])
def test_links_are_followed(capsys, tmp_path, monkeypatch, sources, words, name):
    """The link stays, its target gets what a plain output gets, and nothing else is left."""
    monkeypatch.chdir(tmp_path)
    words = [str(sources.get(word, word)) for word in words.split()]
    (tmp_path / "big").mkdir()
    os.symlink(f"big/{name}", name)
    cli.done(capsys, *words, name)
    assert os.path.islink(name) and os.listdir("big") == [name]
    (tmp_path / "plain").mkdir()
    cli.done(capsys, *words, f"plain/{name}")
    if os.path.isfile(name) and not name.endswith(".json"):
        assert Path("big", name).read_bytes() == Path("plain", name).read_bytes()
    elif os.path.isdir(name):
        assert os.listdir(f"big/{name}") == os.listdir(f"plain/{name}")


@pytest.mark.parametrize("words, name", [(words, name) for words, names in LINKED.items() for name in names])
def test_names_that_are_not_utf8(capsys, tmp_path, monkeypatch, sources, words, name):
    """Of inputs and outputs."""
    monkeypatch.chdir(tmp_path)
    odd = {}
    for word, path in sources.items():
        odd[word] = path.rename(path.with_name(os.fsdecode(b"caf\xe9" + path.suffix.encode())))
    out = os.fsdecode(b"caf\xe9-") + name
    cli.done(capsys, *(str(odd.get(word, word)) for word in words.split()), out)
    assert os.path.exists(out)


def test_parquet_of_a_name_that_is_not_utf8(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(b"caf\xe9.parquet")
    with open(name, "wb") as file:
        pq.write_table(pa.table({"text": ["a b c", "b c"] * 9}), file)
    cli.done(capsys, "lm build", name, "--order", 2, "-o", "lm.ngram")


@pytest.mark.parametrize(
    "words", ["lm build TEXT --order 2 -o o.arpa", "lm count TOKENS --vocab-size 9 --end-of-text 0 -o o"]
)
def test_a_folder_that_was_deleted(tmp_path, sources, words):
    (tmp_path / "gone").mkdir()
    process = cli.start(
        *(str(sources.get(word, word)) for word in words.split()),
        cwd=tmp_path / "gone",
        preexec_fn=lambda: os.rmdir(tmp_path / "gone"),
    )
    err = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 1 and err.count("\n") == 1
    assert_named(err, [f"{words.split()[-1]}: cannot be written", "current folder"])


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


def test_what_is_here(capsys):
    found = cli.figures(capsys, "env")
    assert found["core"] == _core.processor and found["python"] == platform.python_version()
    assert found["machine"]["cores"] == os.cpu_count()
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["safetensors"] == metadata.version("safetensors")
    assert found["rescore"] == metadata.version("rescore")


def test_what_is_missing_is_named_with_its_command(capsys, monkeypatch):
    """Where neither torch nor OpenFst are found."""
    version = metadata.version

    def hidden(name: str) -> str:
        if name in ("torch", "pynini"):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", hidden)
    monkeypatch.setattr("rescore.decode.cli.verbs.env.find_spec", lambda name: None)
    lines = {line.split()[0]: line for line in cli.done(capsys, "env").out.splitlines() if line}
    assert "missing: pip install" in lines["torch"] and "transformers" in lines["torch"]
    assert_named(lines["pywrapfst"], ["missing", "'pynini"])
    assert_named(lines["GPU"], ["unknown"])
