"""The rank of the true token before and after rescoring."""

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
            "Recall@k of a head is the share of positions at which its first k candidates hold the true token. Curves "
            "on the true path count only positions whose earlier true tokens are all in the lattice, as a draft must "
            "contain them to reach the slot; there, candidates are ranked by the head's cost alone, and by the "
            "rescored cost.",
            "The gap between recall@1 before and after rescoring is the gain of the language model. The remaining gap "
            "to the dashed line is the share of true tokens in the lattice that are still misranked.",
        ),
        parts=(_plot(found), _table(found)),
    )


def _plot(found: Sequence[TaskRecall]) -> Plot:
    views = [PlotView(name=ALL, traces=_curves(_rates(found)))] + [
        PlotView(name=task.task, traces=_curves(_rates([task]))) for task in found
    ] * (len(found) > 1)
    return Plot(
        title="Recall@1 by head, and the share in the lattice",
        alt=("Recall at 1 over the heads: at all positions, on the true path, and on the true path after rescoring."),
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
        title="Recall@k at all positions, on the true path, and on the true path rescored; all tasks together",
        headers=headers,
        rows=rows,
    )


def _rates(found: Sequence[TaskRecall]) -> Rates:
    """Recall over all positions of these tasks, NaN for heads without positions."""
    out = {}
    for key, _, _ in KINDS:
        parts: list[Recall] = [getattr(task, key) for task in found]
        hits, total = np.sum([part.hits for part in parts], axis=0), np.sum([part.total for part in parts], axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            out[key] = (list(range(parts[0].first, parts[0].first + len(total))), hits / total[:, None])
    return out


def _rounded(values: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 5) for value in values]
