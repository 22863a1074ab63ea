"""`rescore bench batch`: batches answer like single lattices; allocations are counted by a preloaded library."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from support import cli

from rescore.decode.bench import batch as bench_batch
from rescore.decode.bench.allocations import counter
from rescore.decode.bench.allocations.counter import PreloadUnavailable, compile_preload
from rescore.decode.bench.batch import ALLOCATIONS, OVERHEAD, parts
from rescore.decode.bench.calls import CALLS
from rescore.decode.bench.search import NATIVE, OURS


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("batch")
    cli.make_model(folder / "lm.ngram", cli.make_dump(folder / "dump"))
    return folder


@pytest.fixture(scope="module")
def preload(tmp_path_factory):
    try:
        return compile_preload(tmp_path_factory.mktemp("preload") / "preload.so")
    except PreloadUnavailable as reason:
        pytest.skip(str(reason))


def call(world, *more):
    return ["bench", "batch", "--dump", world / "dump", "--lm", world / "lm.ngram", "--rounds", 1, "--most", 8, *more]


def test_every_call_of_the_allocator_is_counted(preload):
    """Every allocation function is counted, in all threads."""
    code = """
import ctypes, threading
c = ctypes.CDLL(None)
asked = c.rescore_allocations
out = ctypes.c_void_p()
malloc, calloc, realloc, posix, aligned = (
    getattr(c, n) for n in ("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc")
)
for function in (malloc, calloc, realloc, aligned): function.restype = ctypes.c_void_p
def work():
    malloc(10); calloc(3, 5); realloc(None, 7); posix(ctypes.byref(out), 64, 100); aligned(64, 128)
def counted(calls):
    asked()
    for _ in range(calls): work()
    return asked()
work(); asked(); nothing = asked()
there, done, found = threading.Event(), threading.Event(), []
def other():
    work(); there.set(); done.wait(); work()
thread = threading.Thread(target=other); thread.start(); there.wait()
first = counted(4)
print(nothing, first, counted(9) - first)
done.set(); thread.join()
print(asked() >= 5)
"""
    environment = {**os.environ, "LD_PRELOAD": str(preload)}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    assert out == ["0", "20", "25", "True"]


def test_report(world, capsys, preload, monkeypatch):
    monkeypatch.setattr(bench_batch, "compile_preload", lambda path: preload)
    report = cli.figures(capsys, *call(world, "--threads", 1, "--threads", 3))
    assert (
        report["bench"] == "batch" and report["settings"]["left_out"] is None and report["settings"]["lattices"] == 16
    )
    for name in CALLS:
        rows = [row for row in report["results"] if row["group"] == name]
        assert [(row["case"]["threads"], row["case"]["batch"]) for row in rows] == [
            (n, b) for n in (1, 3) for b in (1, 2, 4, 8)
        ]
        for row in rows:
            found = row["engines"][OURS]
            assert (
                found["lattices_per_s"] == pytest.approx(1e6 / found["mean_us"])
                and 0 < found["median_us"] <= found["p99_us"]
            )
    assert [row["case"]["call"] for row in report["results"] if row["group"] == OVERHEAD] == [
        "paths, p = 1",
        "tree of 1",
    ]
    counted = [row for row in report["results"] if row["group"] == ALLOCATIONS]
    assert [(row["case"]["call"], row["case"]["threads"]) for row in counted] == [
        (name, n) for n in (1, 3) for name in CALLS
    ]
    assert all(0 <= one["min"] <= one["max"] for row in counted for one in row["engines"].values())


def test_table_without_a_compiler(world, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(counter.shutil, "which", lambda name: None)
    result = cli.call(capsys, *call(world, "--threads", 1, "--markdown", tmp_path / "b.md"))
    assert (
        result.status == 0
        and "left out: allocations: no g++ on the path; install g++" in result.out
        and ALLOCATIONS not in result.out
    )
    assert (
        "| batch | 1 thread | lattices/s |" in (tmp_path / "b.md").read_text()
        and NATIVE not in result.out
        and "native call" in result.out
    )
    result = cli.call(capsys, *call(world, "--threads", 1, "--markdown", "-"))
    assert result.out.startswith("## rescore bench batch\n") and "native call" in result.err
    both = cli.refusal(capsys, *call(world, "--json", "-", "--markdown", "-"), status=2)
    assert "--json, --markdown: expected different places, got standard output (-)" in both


def test_a_library_that_does_not_link(monkeypatch, tmp_path):
    (tmp_path / "preload.cc").write_text("no C++")
    monkeypatch.setattr(counter, "SOURCE", tmp_path / "preload.cc")
    with pytest.raises(PreloadUnavailable, match="preload.cc needs glibc and does not link here"):
        compile_preload(tmp_path / "preload.so")


def test_a_batch_that_answers_otherwise(world, capsys, monkeypatch):
    right = bench_batch.answers

    def wrong(call, rescorer, batch, histories, size):
        return tuple(array + (size == 4) for array in right(call, rescorer, batch, histories, size))

    monkeypatch.setattr(bench_batch, "answers", wrong)
    assert "paths, p = 16: expected the answers of single lattices, got others in batches of 4" in cli.refusal(
        capsys, *call(world, "--threads", 1)
    )


def test_whole_batches():
    assert parts(7, 3) == [slice(0, 3), slice(3, 6)] and parts(2, 3) == []
    assert [np.arange(7)[part].tolist() for part in parts(7, 7)] == [list(range(7))]
