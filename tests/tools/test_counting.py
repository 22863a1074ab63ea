"""The benchmark of counting engines, where they are installed."""

import json
import sys

import numpy as np
import pytest
from support.tools import load_tool

bench_counting = load_tool("bench/counting")


def run(monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["bench_counting.py", *map(str, words)])
    bench_counting.main()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("engine", ["rescore", "duckdb", "polars"])
def test_engines_agree(tmp_path, monkeypatch, engine):
    pytest.importorskip(engine)
    np.save(tmp_path / "a.npy", np.array([1, 2, 3, 0, 1, 2, 3, 0], np.uint16))
    run(
        monkeypatch,
        tmp_path / "a.npy",
        "--vocab-size",
        4,
        "--end-of-text",
        0,
        "--engines",
        engine,
        "--ram",
        "512M",
        "--work",
        tmp_path,
        "--json",
        tmp_path / "r.json",
    )
    report = json.loads((tmp_path / "r.json").read_text())
    (row,) = report["engines"]
    assert (report["windows"], row["distinct"], row["total"]) == (8, 4, 8)
    assert row["peak_bytes"] > 0 and row["cpu_seconds"] > 0 and [path.name for path in tmp_path.glob("tmp*")] == []


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_engines_that_lose_windows_are_not_timed(tmp_path, monkeypatch):
    def wrong(engine, folder, windows, args):
        return {"engine": engine, "distinct": 4, "total": 7}

    np.save(tmp_path / "a.npy", np.array([1, 2, 3, 0, 1, 2, 3, 0], np.uint16))
    monkeypatch.setattr(bench_counting, "measure", wrong)
    with pytest.raises(SystemExit, match="the engines disagree: duckdb 4 windows, sum 7 of 8"):
        run(monkeypatch, tmp_path / "a.npy", "--vocab-size", 4, "--end-of-text", 0, "--engines", "duckdb")
    with pytest.raises(SystemExit, match="expected windows that fit into 64 bits, got 5 tokens of 16 bits"):
        run(
            monkeypatch,
            tmp_path / "a.npy",
            "--vocab-size",
            65536,
            "--end-of-text",
            0,
            "--engines",
            "duckdb",
            "--order",
            5,
        )


def test_misuse(monkeypatch, capsys):
    for words, message in (
        ([], "expected TOKENS.npy.., --vocab-size and --end-of-text"),
        (
            ["a", "--vocab-size", 4, "--end-of-text", 0, "--engines", "x"],
            "expected some of rescore, duckdb, polars, spark, got x",
        ),
        (["--ram", "4"], "expected a size such as 512M or 4G"),
    ):
        with pytest.raises(SystemExit):
            run(monkeypatch, *words)
        assert message in capsys.readouterr().err
