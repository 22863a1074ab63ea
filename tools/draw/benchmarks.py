"""Draws bench-*.svg from reports of `rescore bench search --sweep --json` and `rescore bench batch --json`.

    python tools/draw/benchmarks.py search-small.json search-large.json batch-large.json [-o docs/pictures]

Microseconds per lattice (medians of searches, means of batches) by p, slots, candidates, nodes of a tree, lattices in a
batch, and size of the model, which needs at least two search reports. Charts without data are left out. Lines are
labelled by the model's number of n-grams. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from line_chart import Axis, Line, chart, save
from matplotlib.figure import Figure

from rescore.decode.bench.calls import CALLS
from rescore.decode.bench.search import (
    ANCHOR,
    BY_CANDIDATES,
    BY_NODES,
    BY_PATHS,
    BY_SLOTS,
    HEADLINE,
    NATIVE,
    OURS,
    TREES,
)

COLOURS = ("after-1", "before", "true-frame", "after-2", "after-3")
MICROSECONDS = Axis(title="microseconds per lattice, one thread", logarithmic=True)
SHORT = {OURS: "ours", NATIVE: "native", ANCHOR: "OpenFst"}
SWEEPS = (
    ("bench-paths.svg", "Time by p, 8 x 16", BY_PATHS, "paths", "p"),
    ("bench-slots.svg", "Time by slots, 16 candidates, p = 16", BY_SLOTS, "slots", "slots T"),
    ("bench-candidates.svg", "Time by candidates, 8 slots, p = 16", BY_CANDIDATES, "candidates", "candidates K"),
    ("bench-nodes.svg", "Time by nodes of the tree, 8 x 16", BY_NODES, "nodes", "nodes n"),
)

Report = dict[str, Any]
Rows = list[dict[str, Any]]


def pictures(reports: list[Report]) -> dict[str, Figure]:
    """File name and chart of each picture that the reports have data for."""
    searches = sorted((one for one in reports if one["bench"] == "search"), key=ngrams)
    batches = sorted((one for one in reports if one["bench"] == "batch"), key=ngrams)
    found = {}
    for file, title, group, key, name in SWEEPS:
        if lines := list(swept(searches, group, key)):
            found[file] = picture(title, name, lines)
    if lines := list(batched(batches)):
        found["bench-batch.svg"] = picture("Time by lattices per call, 8 x 16, one thread", "lattices B", lines)
    if len({ngrams(one) for one in searches}) > 1:
        found["bench-models.svg"] = chart(
            "Time by the size of the model, 8 x 16",
            Axis(title="n-grams", logarithmic=True),
            MICROSECONDS,
            list(by_model(searches)),
            form=".0f",
        )
    return found


def ngrams(report: Report) -> int:
    return sum(report["settings"]["ngrams"])


def group_of(report: Report, name: str) -> Rows:
    return [row for row in report["results"] if (row["group"], row["run"]) == (name, 1)]


def swept(searches: list[Report], group: str, key: str) -> Iterator[Line]:
    """A line per report and engine: its median by the varying size."""
    colours = iter(COLOURS * len(searches))
    for report in searches:
        rows = group_of(report, group)
        for engine in rows[0]["engines"] if rows else ():
            if engine != NATIVE:
                points = [(row["case"][key], row["engines"][engine]["median_us"]) for row in rows]
                yield Line(name=f"{SHORT[engine]}, {ngrams(report) / 1e6:.3g}M", colour=next(colours), points=points)


def batched(batches: list[Report]) -> Iterator[Line]:
    """A line per report and call: the mean by batch size, on one thread."""
    colours = iter(COLOURS * len(batches))
    for report in batches:
        for name in CALLS:
            points = [
                (row["case"]["batch"], row["engines"][OURS]["mean_us"])
                for row in group_of(report, name)
                if row["case"]["threads"] == 1
            ]
            if points:
                yield Line(name=f"{name}, {ngrams(report) / 1e6:.3g}M", colour=next(colours), points=points)


def by_model(searches: list[Report]) -> Iterator[Line]:
    """Lines of exact searches, ours and OpenFst's, and of trees: median of the runs."""
    wanted: list[tuple[str, str, str, Callable[[Report], bool]]] = [
        ("p = 16", HEADLINE, OURS, lambda case: True),
        ("OpenFst, p = 16", HEADLINE, ANCHOR, lambda case: True),
        ("tree of 16", TREES, OURS, lambda case: case["nodes"] == 16),
        ("tree of 64", TREES, OURS, lambda case: case["nodes"] == 64),
    ]
    for (name, group, engine, fits), colour in zip(wanted, COLOURS):
        points = []
        for report in searches:
            runs = [
                row["engines"][engine]["median_us"]
                for row in report["results"]
                if row["group"] == group and fits(row["case"]) and engine in row["engines"]
            ]
            if runs:
                points.append((ngrams(report), statistics.median(runs)))
        if points:
            yield Line(name=name, colour=colour, points=points)


def picture(title: str, name: str, lines: list[Line]) -> Figure:
    ticks = sorted({x for line in lines for x, _ in line.points})
    return chart(title, Axis(title=name, logarithmic=True, ticks=ticks), MICROSECONDS, lines, form=".0f")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path, metavar="FILE", help="reports written by --json")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path(__file__).resolve().parents[2] / "docs" / "pictures",
        metavar="DIR",
        help="default: docs/pictures",
    )
    args = parser.parse_args()
    for name, figure in pictures([json.loads(path.read_text(encoding="utf-8")) for path in args.reports]).items():
        save(figure, args.output / name)
        print(args.output / name)


if __name__ == "__main__":
    main()
