"""Calibration of q: the probability of nodes against the share that was accepted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.analyses.reliability import EDGES, Reliability
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

TICKS = (0.001, 0.01, 0.1, 1.0)
LEAST_NODES = 30  # bins with fewer nodes are not plotted


def section(found: Sequence[Reliability], drafter: str) -> Section:
    """drafter: its name on the page."""
    return Section(
        key="reliability",
        title="Calibration of q",
        prose=(
            f"The nodes drafted by {drafter}, binned by the probability q of their prefix, and the share of them that "
            "was accepted. On the dashed line q is calibrated; below it q is overconfident, above it underconfident. "
            "The sum of q over a tree's nodes is its expected number of accepted tokens.",
        ),
        parts=(_plot(found), _bins(found), _tasks(found)),
    )


def _plot(found: Sequence[Reliability]) -> Plot:
    views = [PlotView(name="all tasks", traces=_traces(found))]
    views += [PlotView(name=one.task, traces=_traces([one])) for one in found] * (len(found) > 1)
    ticks = {"tickvals": list(TICKS), "ticktext": [f"{tick:g}" for tick in TICKS]}
    return Plot(
        title="Accepted share of nodes against their q",
        alt="Points of the accepted share of nodes over their q, and the diagonal; the table below has the figures.",
        views=views,
        layout=plots.axes(
            "q of the prefix",
            "share accepted",
            **plots.powers(TICKS),
            y_type="log",
            **{f"y_{name}": value for name, value in ticks.items()},
        ),
    )


def _traces(found: Sequence[Reliability]) -> list[dict]:
    nodes, expected, accepted = _summed(found)
    kept = (nodes >= LEAST_NODES) & (accepted > 0)
    x, y = expected[kept] / nodes[kept], accepted[kept] / nodes[kept]
    texts = [f"{count:,} nodes" for count in nodes[kept].tolist()]
    ends = [TICKS[0], TICKS[-1]]
    return [
        plots.curve("accepted", np.round(x, 5).tolist(), np.round(y, 5).tolist(), series="open", texts=texts),
        plots.curve("calibrated", ends, ends, series="oracle", dash="dash", mode="lines"),
    ]


def _bins(found: Sequence[Reliability]) -> Table:
    nodes, expected, accepted = _summed(found)
    rows = []
    for low, high, count, mass, hits in zip(EDGES, EDGES[1:], nodes.tolist(), expected.tolist(), accepted.tolist()):
        share = [numbers.percent(part / count if count else None, 1) for part in (mass, hits)]
        rows.append((numbers.text(f"{low:g}–{high:g}"), numbers.count(count), *share, numbers.count(hits)))
    return Table(
        title="Nodes by q, all tasks together",
        headers=("q", "nodes", "mean q", "accepted", "nodes accepted"),
        rows=rows,
    )


def _tasks(found: Sequence[Reliability]) -> Table:
    rows = []
    for one in found:
        expected, accepted = (float(of.sum()) / max(one.passes, 1) for of in (one.expected, one.accepted))
        ratio = expected / accepted if accepted else None
        cells = [numbers.decimal(value) for value in (expected, accepted, ratio)]
        rows.append((numbers.text(one.task), numbers.count(one.passes), *cells))
    return Table(
        title="Accepted tokens per pass, expected and observed",
        headers=("task", "passes", "expected", "accepted", "expected / accepted"),
        rows=rows,
    )


def _summed(
    found: Sequence[Reliability],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    return (
        np.sum([one.nodes for one in found], axis=0),
        np.sum([one.expected for one in found], axis=0),
        np.sum([one.accepted for one in found], axis=0),
    )
