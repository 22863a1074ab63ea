"""The command line as a process: what it imports, signals, pipes, full disks, closed streams."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import numpy as np
import pytest
from support import cli, dumps
from support.refusals import assert_named

from rescore.lattice.extras import remedy


def modules(code: str) -> set[str]:
    """What a fresh interpreter has imported after `code`."""
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stderr.split())


HEAVY = {"torch", "pyarrow", "tokenizers", "pynini", "pywrapfst", "safetensors", "transformers"}


def test_help_of_every_verb_imports_next_to_nothing():
    """Start-up is the time of imports; all verbs in one process."""
    verbs = ("generate", "run", "report", "tune", "oracle", "cost", "draw", "dump", "lm", "bench")
    code = (
        f"from contextlib import suppress\nfrom rescore.decode.cli import main\nfor verb in {verbs}:\n with "
        "suppress(SystemExit): main([verb, '--help'])\n"
    )
    found = modules(code)
    assert not found & (HEAVY | {"numpy", "rich", "plotly", "kenlm", "rescore._core"})
    assert not any(name.startswith("rescore.decode.cli.screen") for name in found)


def test_imports_of_a_run(world, tmp_path):
    words = [
        str(word) for word in ("run", world / "dump", "--lm", world / "lm.ngram", "--drafts", tmp_path / "d.jsonl")
    ]
    assert not modules(f"from rescore.decode.cli import main\nassert main({words}) == 0") & (HEAVY - {"safetensors"})


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
