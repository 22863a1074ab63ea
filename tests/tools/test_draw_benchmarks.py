"""Pictures of benchmarks: which are drawn, and lines where their figures are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml

from support.tools import load_tool

from rescore.decode.bench.search import ANCHOR, BY_NODES, BY_PATHS, HEADLINE, NATIVE, OURS, TREES

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


def names(drawing):
    return re.findall(r">([^<>]+): \d+<", drawing)


def test_what_the_reports_have_is_drawn():
    batch = report(
        "batch", 10, [("tree of 16", {"batch": b, "threads": t}, {OURS: 7.0}) for b in (1, 2) for t in (1, 2)]
    )
    found = draw_benchmarks.pictures([search(20_000_000, 3), search(850_000, 1), batch])
    assert set(found) == {"bench-paths.svg", "bench-nodes.svg", "bench-batch.svg", "bench-models.svg"}
    for drawing in found.values():
        xml.fromstring(drawing)
    assert names(found["bench-paths.svg"]) == ["ours, 0.85M", "OpenFst, 0.85M", "ours, 20M", "OpenFst, 20M"]
    assert names(found["bench-models.svg"]) == ["p = 16", "OpenFst, p = 16", "tree of 16", "tree of 64"]
    assert names(found["bench-batch.svg"]) == ["tree of 16, 1e-05M"]
    assert set(draw_benchmarks.pictures([search(850_000, 1)])) == {"bench-paths.svg", "bench-nodes.svg"}


def test_lines_lie_where_their_figures_are():
    """Ratios of four, to the right and upwards, are equal distances."""
    lines = re.findall(
        r'<path d="M([\d. L]+)" class="line', draw_benchmarks.pictures([search(850_000, 1)])["bench-paths.svg"]
    )
    for line in lines:
        (x1, y1), (x2, y2), (x3, y3) = (tuple(map(float, pair.split())) for pair in line.split("L"))
        assert abs((x2 - x1) - (x3 - x2)) < 0.2 and abs((y1 - y2) - (y2 - y3)) < 0.2 and y1 > y3
    first, second = (float(line.split("L")[0].split()[1]) for line in lines)
    assert first > second  # thirty times as slow is higher
