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

from rescore.decode.cli import main
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


def test_formats_are_those_of_the_library():
    from rescore.decode.cli import groups
    from rescore.decode.cli.verbs import bench_passes
    from rescore.decode.cost import model_shape
    from rescore.decode.replay import table
    from rescore.lm.model import formats

    assert groups.LM_SUFFIXES == (*formats.SUFFIXES, formats.LOOKUP)
    assert groups.LINES.suffixes == table.SUFFIXES
    assert set(bench_passes.SHAPES) < set(model_shape.PRESETS)


def test_debug_shows_the_traceback(capsys, tmp_path):
    with pytest.raises(FileNotFoundError):
        main(["oracle", str(tmp_path / "none"), "--debug"])


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
    folder = tmp_path_factory.mktemp("large") / "dump"
    made = dumps.sequences(count=5)
    long = {
        name: np.tile(made[0][name], (400, *(1,) * (made[0][name].ndim - 1)))
        if np.ndim(made[0][name]) > 1
        else np.tile(made[0][name], 400)
        for name in ("tokens", "topk_ids", "topk_logp", "entropy")
    }
    dumps.write(folder, made=[{**made[0], **long}] * 6)
    return folder


@pytest.mark.parametrize(
    "number, status, told",
    [(signal.SIGINT, 130, "rescore: interrupted; no incomplete files were left behind\n"), (signal.SIGTERM, 143, "")],
)
def test_signals_leave_nothing_half_written(world, large, tmp_path, number, status, told):
    process = cli.start(
        *(f"run {large} --lm {world}/lm.ngram --paths 200 --drafts {tmp_path}/d.jsonl --json {tmp_path}/r.json").split()
    )
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
    names = {"DUMP": world / "dump", "LM": world / "lm.ngram"}
    read, write = os.pipe()
    os.close(read)
    process = cli.start(*(names.get(word, word) for word in call.split()), stdout=write)
    os.close(write)
    err = process.communicate(timeout=120)[1]
    assert process.returncode == 0 and b"rror" not in err and b"Traceback" not in err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_full_disks(world, tmp_path):
    with open("/dev/full", "w") as full:
        process = cli.start("oracle", world / "dump", stdout=full)
        assert process.communicate(timeout=120)[1].decode() == "rescore: writing or reading: No space left on device\n"
        assert process.returncode == 1
    for words in (
        ["oracle", world / "dump", "--json", "/dev/full"],
        ["run", world / "dump", "--lm", world / "lm.ngram", "--drafts", tmp_path / "d.jsonl"],
    ):
        (tmp_path / "d.jsonl").unlink(missing_ok=True)
        (tmp_path / "d.jsonl").symlink_to("/dev/full")
        process = cli.start(*words)
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


def test_no_standard_output_at_all(world, tmp_path):
    process = cli.start(
        "oracle", world / "dump", "--json", tmp_path / "o.json", stdout=None, preexec_fn=lambda: os.close(1)
    )
    assert process.communicate(timeout=120)[1] == b"" and process.returncode == 0
    assert (tmp_path / "o.json").exists()


def test_names_that_are_no_text(world, tmp_path):
    """Names are bytes; a terminal may know ASCII alone."""
    name = os.fsdecode(b"d\xff\xc3\xa9")
    (tmp_path / name).symlink_to(world / "dump")
    for words in (
        ["run", tmp_path / name, "--drafts", tmp_path / f"{name}.parquet"],
        ["dump", "info", tmp_path / name],
    ):
        process = cli.start(*words, env={**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
        out, err = process.communicate(timeout=120)
        assert (process.returncode, err) == (0, b"") and out.isascii()
    process = cli.start("dump", "info", tmp_path / f"{name}.none")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1 and b"expected a folder" in err and err.count(b"\n") == 1
