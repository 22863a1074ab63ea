"""Time of one search, ours and OpenFst's, as measured by `rescore bench search`, and the paper's."""

from __future__ import annotations

from collections.abc import Mapping

from rescore.decode.bench.paper_latency import TABLE_12_MS, TABLE_13_MS, Cell
from rescore.decode.bench.search_times import SearchTimes, Times
from rescore.decode.report import content, numbers
from rescore.decode.report.content import Facts, Section, Table


def section(times: SearchTimes, name: str) -> Section:
    """name: of the file with the times."""
    facts = times.facts
    return Section(
        key="latency",
        title="Search latency",
        cites="tables 12, 13",
        prose=(
            f"Milliseconds of one thread to rescore one lattice, from {name}: the median over "
            f"{facts.get('lattices', 'the')} lattices; below it the 99th percentile, and the ratio to the median of "
            "our search with the same semantics. All engines rescored the same lattices in one run, and engines with "
            "the same semantics gave the same results. "
            f"The model has {times.ngrams:,} n-grams.",
            "The last column is from the paper: OpenFst with a 4-gram model of C4 of about 100M n-grams, mean of 10 "
            "runs on an unnamed processor (Kim et al., appendix I.2). It was not measured on this machine.",
        ),
        parts=(
            _table(
                times,
                "Time for the p best paths of 8 × 16",
                "p",
                {cell: str(cell[2]) for cell in TABLE_12_MS},
                TABLE_12_MS,
            ),
            _table(
                times,
                "Time for the best path, by slots × candidates",
                "slots × candidates",
                {cell: f"{cell[0]} × {cell[1]}" for cell in TABLE_13_MS},
                TABLE_13_MS,
            ),
            Facts(title="Measured with", rows=[(name.replace("_", " "), value) for name, value in facts.items()]),
        ),
    )


def _table(
    times: SearchTimes, title: str, first: str, labels: Mapping[Cell, str], paper: Mapping[Cell, float]
) -> Table:
    rows = [
        (numbers.text(label), *(_time(own) for own in times.cells[cell].values()), numbers.decimal(paper[cell], 3))
        for cell, label in labels.items()
    ]
    return Table(title=title, headers=(first, *times.engines, "the paper, OpenFst"), rows=rows)


def _time(times: Times) -> content.Cell:
    ratio = "" if times.times_ours is None else f", {times.times_ours:.1f} × ours"
    return content.Cell(f"{times.median_us / 1e3:.3f}", times.median_us / 1e3, f"{times.p99_us / 1e3:.3f}{ratio}")
