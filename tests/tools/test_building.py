"""The benchmark of building: what is measured, which parts of a corpus are built, what it refuses."""

import json
import re
import shlex
import sys

import numpy as np
import pytest
from support.refusals import refuses
from support.tools import load_tool

from rescore.lm.model import example
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

bench_build = load_tool("bench/building")

# `rescore lm build` without what it does not know yet, its stages added to the JSON; a file of 1 MB in the work folder.
BUILD = """
import json, sys
from pathlib import Path
from rescore.decode.cli import main
words = sys.argv[1:]
value = {}
for name in ("--ram", "--disk", "--threads", "--work"):
    at = words.index(name)
    value[name], words[at : at + 2] = words[at + 1], []
(Path(value["--work"]) / "counts").write_bytes(bytes(10**6))
status = main(words)
path = Path(words[words.index("--json") + 1])
stages = [{"stage": "count", "seconds": 1.5}, {"stage": "estimate", "seconds": 0.5}]
path.write_text(json.dumps({**json.loads(path.read_text()), "stages": stages}))
sys.exit(status)
"""


@pytest.fixture
def command(tmp_path):
    (tmp_path / "build.py").write_text(BUILD)
    return shlex.join([sys.executable, str(tmp_path / "build.py")])


@pytest.fixture
def corpus(tmp_path):
    draw = np.random.default_rng(1)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for i in range(2):
        tokens = draw.integers(1, 20, 400).astype(np.uint16)
        tokens[39::40] = 0
        np.save(folder / f"shard-0000{i}.npy", tokens)
    (folder / "corpus.json").write_text(json.dumps({"vocab_size": 20, "end_of_text": 0}))
    return folder


def run(monkeypatch, *words) -> None:
    monkeypatch.setattr(sys, "argv", ["bench_build.py", *map(str, words)])
    bench_build.main()


def test_figures_of_growing_parts(monkeypatch, tmp_path, corpus, command, capsys):
    options = ("--tokens", "300,610", "--order", 2, "--rescore", command, "--folder", tmp_path)
    run(monkeypatch, "sampled", corpus, *options, "--json", tmp_path / "out.json")
    runs = json.loads((tmp_path / "out.json").read_text())["runs"]
    whole = np.concatenate([np.load(path) for path in sorted(corpus.glob("*.npy"))])
    for figures, tokens in zip(runs, (300, 610), strict=True):
        text = [0, *whole[:tokens].tolist(), 0]  # neither part ends with a document
        assert figures["tokens"] == tokens and figures["ngrams"] == [20, len(set(zip(text, text[1:])))]
        assert figures["disk_bytes"] >= 10**6 and 10**7 < figures["anonymous_bytes"] < figures["rss_bytes"] < 10**9
        assert figures["highest_bytes"] > 10**7 and figures["seconds"] > 0 and figures["cpu_seconds"] > 0
        assert figures["stages"][1] == {"stage": "estimate", "seconds": 0.5}
    lines = [" ".join(line.replace("|", " ").split()) for line in capsys.readouterr().out.split("\n")]
    assert "count 1.5 1.5" in lines and "estimate 0.5 0.5" in lines
    assert [line.split()[0] for line in lines if re.match(r"\d+ [\d.]+ [\d.]+ ", line)] == ["300", "610"]
    assert not list(tmp_path.glob("bench-build-*"))


def test_a_model_that_is_no_distribution_is_refused(tmp_path):
    wrong = dict(example.NGRAMS) | {(example.LIONEL,): (0.3, 0.5)}
    NGram.from_tables(Tables.from_ngrams(wrong, vocab_size=6)).save(tmp_path / "wrong.ngram")
    refuses(SystemExit, lambda: bench_build.check(tmp_path / "wrong.ngram", None), "wrong.ngram", "0", "1.2")
    example.model().save(tmp_path / "large.ngram")
    refuses(SystemExit, lambda: bench_build.check(tmp_path / "large.ngram", 9), "large.ngram", "9", "10")


def test_memory_of_all_processes_and_disk(tmp_path):
    code = f"""
import subprocess, sys, time
own = bytearray(60 * 2**20)
if len(sys.argv) == 1:
    with open({str(tmp_path / "file")!r}, "wb") as file:
        file.write(bytes(2**20))
    sys.exit(subprocess.call([sys.executable, sys.argv[0], "child"]) + 4)
time.sleep(0.3)
"""
    (tmp_path / "command.py").write_text(code)
    folder = tmp_path / "log"
    with open(folder, "wb") as log:
        use = bench_build.watch([sys.executable, str(tmp_path / "command.py")], tmp_path, log)
    assert use.status == 4 and 120 * 2**20 < use.anonymous_bytes < use.rss_bytes < 260 * 2**20
    assert 60 * 2**20 < use.highest_bytes < 120 * 2**20
    assert 2**20 <= use.disk_bytes < 2**21
