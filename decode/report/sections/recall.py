"""Where the true token ranks, before and after rescoring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.analyses.recall import Recall, TaskRecall
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Cell, Plot, PlotView, Section, Table

ALL = "all tasks"
KINDS = (
    ("heads", "heads, all positions", "tree-base"),
    ("on_path", "on the true path, heads", "paths-base"),
    ("rescored", "on the true path, rescored", "tree"),
)
COLUMNS = {"heads": "all", "on_path": "path", "rescored": "rescored"}


def section(found: Sequence[TaskRecall]) -> Section:
    return Section(
        key="recall",
        title="Recall",
        prose=(
            "Recall@k of a head is how often the true token is among its first k candidates. "
            "On the true path only positions count whose earlier true tokens are all in the "
            "lattice, as a draft that reaches the slot needs; there the rank is told by the head's cost alone, "
            "and with the language model's added in that context.",
            "The gap between recall@1 before and after rescoring is what the language model repairs; "
            "what is left up to the dashed line is in the lattice, but misranked.",
        ),
        parts=(_plot(found), _table(found)),
    )


def _plot(found: Sequence[TaskRecall]) -> Plot:
    views = [PlotView(name=ALL, traces=_curves(_rates(found)))] + [
        PlotView(name=task.task, traces=_curves(_rates([task]))) for task in found
    ] * (len(found) > 1)
    return Plot(
        title="Recall@1 by head, and the share in the lattice",
        alt=(
            "Recall at 1 over the heads: of the heads by themselves, on the true path by the heads, "
            "and on the true path rescored."
        ),
        views=views,
        layout=plots.axes("head", "share of positions", y_tickformat=".0%", x_dtick=1),
    )


Rates = dict[str, tuple[list[int], NDArray[np.float64]]]  # kind: heads, and recall [heads, K]


def _curves(rates: Rates) -> list[dict[str, Any]]:
    traces = [
        plots.curve(title, [float(head) for head in rates[key][0]], _rounded(rates[key][1][:, 0]), series=series)
        for key, title, series in KINDS
    ]
    heads, table = rates["on_path"]
    return [
        *traces,
        plots.curve(
            "on the true path, in the lattice",
            [float(head) for head in heads],
            _rounded(table[:, -1]),
            series="oracle",
            dash="dash",
            mode="lines",
        ),
    ]


def _table(found: Sequence[TaskRecall]) -> Table:
    rates = _rates(found)
    width = rates["heads"][1].shape[1]
    shown = sorted({k for k in (1, 2, 4, width) if k <= width})
    rows: list[tuple[Cell, ...]] = []
    for head in rates["heads"][0]:
        cells: list[Cell] = []
        for key, _, _ in KINDS:
            heads, table = rates[key]
            values = table[heads.index(head)] if head in heads else None
            cells += [
                numbers.percent(None if values is None or np.isnan(values[k - 1]) else float(values[k - 1]), 1)
                for k in shown
            ]
        rows.append((numbers.count(head), *cells))
    headers = ("head", *(f"{COLUMNS[key]} @{k}" for key, _, _ in KINDS for k in shown))
    return Table(
        title="Recall@k of the heads at all positions, on the true path, and there rescored; all tasks together",
        headers=headers,
        rows=rows,
    )


def _rates(found: Sequence[TaskRecall]) -> Rates:
    """Recall of all positions of these tasks together, NaN for heads that were never asked."""
    out = {}
    for key, _, _ in KINDS:
        parts: list[Recall] = [getattr(task, key) for task in found]
        hits, total = np.sum([part.hits for part in parts], axis=0), np.sum([part.total for part in parts], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            out[key] = (list(range(parts[0].first, parts[0].first + len(total))), hits / total[:, None])
    return out


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 5) for value in values]
