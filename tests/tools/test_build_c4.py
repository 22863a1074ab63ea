"""The recipe for C4: its plan, its estimate, what it runs; and the growth of n-grams that the estimate rests on."""

import gzip
import json
import os
import re

import pytest
from support import cli
from support.refusals import refuses
from support.tools import load_tool

build_c4 = load_tool("data/build_c4")
c4_cost = load_tool("data/c4_cost")


FAKE = """#!/bin/sh
echo "$0 $*" >> {log}
for word in "$@"; do [ "$last" = -o ] && out=$word; last=$word; done
case "$0 $2" in *submit*|*count) mkdir -p $out; out=$out/counts.json;; esac
[ -e {log}.fail ] || touch "$out"
[ ! -e {log}.fail ]
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A folder with two shards, and programs that only note how they were called."""
    cli.make_tokenizer(tmp_path / "t.json")
    (tmp_path / "en").mkdir()
    for number in range(2):
        lines = "".join(json.dumps({"text": "w1 w2 w3 w4"}) + "\n" for _ in range(5))
        (tmp_path / "en" / f"c4-train.0000{number}-of-01024.json.gz").write_bytes(gzip.compress(lines.encode()))
    (tmp_path / "en" / "c4-validation.00000-of-00008.json.gz").touch()
    (tmp_path / "bin").mkdir()
    for name in ("rescore", "spark-submit"):
        (tmp_path / "bin" / name).write_text(FAKE.format(log=tmp_path / "log"))
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def call(world, *words):
    build_c4.main([str(world / "en"), "--tokenizer", str(world / "t.json"), "-o", str(world / "out"), *words])


def calls(world):
    return (
        [
            line.split("/")[-1] if "submit" in line else line.split("bin/")[1]
            for line in (world / "log").read_text().splitlines()
        ]
        if (world / "log").exists()
        else []
    )


def test_dry_run(world, capsys):
    call(
        world,
        *"--dry-run --bytes-per-token 4 --text-bytes 512G --sample".split(),
        str(world / "en" / "c4-train.00000-of-01024.json.gz"),
    )
    told = capsys.readouterr().out
    assert "sample of 5 documents: 4 +- 0 tokens each, 2.75 bytes per token" in told
    assert "measured on c4-train.00000-of-01024.json.gz" in told
    assert told.count("rescore lm count '") == 1 and told.count(f"rescore lm build {world}/out/counts ") == 3
    assert "--order 4 --min-count 1,1,2,4 --max-ngrams 100M --ram 4G --disk" in told
    assert "--order 2 --min-count 1,1 --max-ngrams" in told and "c4-validation.*-of-00008.json.gz" in told
    assert not (world / "out").exists() and not calls(world)


def test_models_are_built_once(world, capsys, monkeypatch):
    call(world, "--yes", "--orders", "2,4")
    assert [re.search(r"--order (\d)", line)[1] for line in calls(world)] == ["4", "2", "4"]
    (world / "out" / "4gram.ngram").unlink()
    monkeypatch.setattr("builtins.input", lambda _: "y")
    call(world, "--orders", "2,4")
    assert len(calls(world)) == 4 and "2-gram model: " in capsys.readouterr().out


def test_spark_counts_once_for_all_models(world):
    (world / "log.fail").touch()
    refuses(SystemExit, lambda: call(world, "--yes", "--counts-on", "spark"), "counts", "1")
    (world / "log.fail").unlink()
    call(world, "--yes", "--counts-on", "spark", "--master", "spark://h:7077", "--spark-conf", "a=b", "--orders", "3")
    lines = (world / "log").read_text().splitlines()
    assert len(lines) == 3 and "--master spark://h:7077 --conf a=b" in lines[1] and "--order 3 --partitions" in lines[1]
    assert f"lm build {world}/out/counts -o {world}/out/3gram.ngram" in lines[2]


def test_growth():
    law = c4_cost.Growth(order=2, least=1, tokens=1000, distinct=100, exponent=0.5, deviation=0, change=-0.1)
    assert law.at(4000, falling=False) == pytest.approx(200)  # 100 * 4 ^ 0.5
    assert law.at(4000, falling=True) == pytest.approx(100 * 2**0.4 * 2**0.3)
    assert law.at(1000 * 2**0.5, falling=False) == pytest.approx(100 * 2**0.25)
    assert law.at(1e9, falling=True) == pytest.approx(100 * 2 ** (0.4 + 0.3 + 0.2 + 0.1))  # the exponent stops at 0
    assert law.at(250, falling=False) == law.at(250, falling=True) == pytest.approx(50)


def test_costs_are_the_sums_that_they_say():
    given = {"text_bytes": 400e9, "bytes_per_token": 4, "tokenize_rate": 1e6, "count_rate": 1e6, "spark_rate": 1e5}
    facts = c4_cost.replaced(c4_cost.PUBLISHED, "given", **given, window_bytes=10)
    costs = c4_cost.estimate(facts, share=0.5, orders=(2, 4), cores=10, memory=16e9)
    assert costs.tokens == 50e9 and costs.count_hours == pytest.approx(50e9 * 2e-6 / 10 / 3600)
    assert costs.spark_hours == pytest.approx(50e9 / 1e5 / 10 / 3600)
    assert costs.windows == (c4_cost.ALL[4].at(50e9, True), c4_cost.ALL[4].at(50e9, False))
    runs = 50 * c4_cost.ALL[4].at(1e9, True)  # 16 GB of memory sort a billion windows
    assert costs.machine_bytes[0] == pytest.approx(10 * (runs + 2 * costs.windows[0] + costs.kept[4][0]))
    assert costs.windows[0] < costs.windows[1] < costs.tokens and costs.kept[2][1] < costs.kept[4][1]
