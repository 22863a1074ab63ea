"""Pictures of benchmarks: which are drawn, and lines where their figures are."""

from __future__ import annotations

import pytest
from support.tools import load_tool

from rescore.decode.bench.search import ANCHOR, BY_NODES, BY_PATHS, HEADLINE, NATIVE, OURS, TREES

pytest.importorskip("matplotlib")
draw_benchmarks = load_tool("draw/benchmarks")


def report(bench, ngrams, rows):
    results = [
        {
            "group": group,
            "run": 1,
            "case": case,
            "engines": {name: {"median_us": us, "mean_us": us} for name, us in engines.items()},
        }
        for group, case, engines in rows
    ]
    return {"bench": bench, "settings": {"ngrams": [ngrams]}, "results": results}


def search(ngrams, factor):
    return report(
        "search",
        ngrams,
        [
            (HEADLINE, {"paths": 16}, {OURS: 10 * factor, ANCHOR: 300 * factor}),
            (TREES, {"nodes": 16}, {OURS: 5 * factor}),
            (TREES, {"nodes": 64}, {OURS: 20 * factor}),
            *((BY_PATHS, {"paths": p}, {OURS: p * factor, NATIVE: 1, ANCHOR: 30 * p * factor}) for p in (1, 4, 16)),
            *((BY_NODES, {"nodes": n}, {OURS: n * factor}) for n in (16, 64)),
        ],
    )


def names(figure):
    return [line.get_label() for line in figure.axes[0].lines]


def test_what_the_reports_have_is_drawn():
    batch = report(
        "batch", 10, [("tree of 16", {"batch": b, "threads": t}, {OURS: 7.0}) for b in (1, 2) for t in (1, 2)]
    )
    found = draw_benchmarks.pictures([search(20_000_000, 3), search(850_000, 1), batch])
    assert set(found) == {"bench-paths.svg", "bench-nodes.svg", "bench-batch.svg", "bench-models.svg"}
    assert names(found["bench-paths.svg"]) == ["ours, 0.85M", "OpenFst, 0.85M", "ours, 20M", "OpenFst, 20M"]
    assert names(found["bench-models.svg"]) == ["p = 16", "OpenFst, p = 16", "tree of 16", "tree of 64"]
    assert names(found["bench-batch.svg"]) == ["tree of 16, 1e-05M"]
    assert set(draw_benchmarks.pictures([search(850_000, 1)])) == {"bench-paths.svg", "bench-nodes.svg"}


def test_lines_hold_the_figures():
    (axes,) = draw_benchmarks.pictures([search(850_000, 1)])["bench-paths.svg"].axes
    found = {line.get_label(): list(zip(*line.get_data())) for line in axes.lines}
    assert found == {
        "ours, 0.85M": [(1, 1), (4, 4), (16, 16)],
        "OpenFst, 0.85M": [(1, 30), (4, 120), (16, 480)],
    }
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
