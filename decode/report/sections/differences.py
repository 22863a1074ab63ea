"""Paired differences between drafters, and the gain of each source of the blend, by leaving one out at a time."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.names import sized
from rescore.decode.replay.figures import EQUAL, SIGNIFICANT, Figures
from rescore.decode.report import plots
from rescore.decode.report.content import Plot, PlotView, Section, Table
from rescore.decode.report.measured import Measured

SOURCES = ("blend-without-lm", "blend-without-heads", "blend")


def section(measured: Measured) -> Section:
    figures = measured.figures
    return Section(
        key="differences",
        title="What each source adds",
        prose=(
            "The plot: the n-gram model alone, the blend of all sources, and the blend without one of them. The table: "
            "the block efficiency of a drafter minus that of another at the same budget, on the same sequences, as the "
            "mean over tasks with its interval and two-sided p-value, and the number of tasks on which the first is "
            f"better or worse with p below {SIGNIFICANT}. P-values are not corrected for multiple comparisons.",
        ),
        parts=(*([_plot(figures)] if sized("blend", EQUAL[0]) in figures.names else []), _table(figures)),
    )


def _plot(figures: Figures) -> Plot:
    views = [
        PlotView(name=f"{n} nodes{told.replace(' ', ', ')}", traces=_bars(figures, told, n))
        for told in ("", " tuned")
        for n in EQUAL
        if sized("blend" + told, n) in figures.names
    ]
    return Plot(
        title="Tokens per pass with and without each source",
        alt="Bars of tokens per pass by task: the n-gram model alone, the blend without a source, the blend.",
        views=views,
        layout=plots.axes("", "tokens per target pass", barmode="group", y_rangemode="tozero"),
    )


def _bars(figures: Figures, told: str, n: int) -> list[dict[str, Any]]:
    tasks, stems = figures.task_names, ("lm-alone", *(name + told for name in SOURCES))
    return [
        plots.bars(stem, tasks, [figures.value(name, task) for task in tasks], series=plots.style(stem)["series"])
        for stem in stems
        for name in [sized(stem, n)]
        if name in figures.names
    ]


def _table(figures: Figures) -> Table:
    rows, sure = [], 0
    for one in figures.overall["differences"]:
        pair = one["drafter"], one["against"]
        found = [figures.difference(*pair, task) for task in (None, *figures.task_names)]
        whole, *each = (one for one in found if one)
        signs = [difference.sign for difference in each]
        sure += bool(whole.sign)
        rows.append((*pair, whole.interval, whole.p_value, signs.count(1), signs.count(-1), len(each)))
    return Table.of(
        "Paired differences of block efficiency",
        ("drafter", "against", "difference", "p", "better", "worse", "tasks"),
        rows,
        {"difference": ".3f", "p": "p"},
        gist=f"{sure} of {len(rows)} with p below {SIGNIFICANT}",
    )
