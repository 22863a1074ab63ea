"""The gain of each source of the blend, by leaving one out at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rescore.decode.draft.names import BLEND, LM_ALONE, TUNED, WITHOUT_HEADS, WITHOUT_LM, sized, split
from rescore.decode.replay.figures import EQUAL, Figures
from rescore.decode.report import families, numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section
from rescore.decode.report.sections import differences

ABLATIONS = (LM_ALONE, WITHOUT_LM, WITHOUT_HEADS, BLEND)
ALL = {*ABLATIONS, *(name + TUNED for name in ABLATIONS)}


def section(figures: Figures) -> Section:
    return Section(
        key="sources",
        title="What each source adds",
        prose=("The n-gram model alone, the blend of all sources, and the blend without one of them.",),
        parts=(_plot(figures), differences.table(figures, among_sources)),
    )


def among_sources(drafter: str, against: str) -> bool:
    """Whether both drafters are blends or a source alone."""
    return {split(drafter)[0], split(against)[0]} <= ALL


def _plot(figures: Figures) -> Plot:
    efficiency = figures.overall["block_efficiency"]
    views = [
        PlotView(name=f"{n} nodes{told.replace(' ', ', ')}", traces=_bars(figures, [sized(name, n) for name in names]))
        for told in ("", TUNED)
        for n in EQUAL
        for names in [(LM_ALONE, *(name + told for name in ABLATIONS[1:]))]
        if sized(names[-1], n) in efficiency
    ]
    return Plot(
        title="Tokens per pass with and without each source",
        alt="Bars of tokens per pass by task: the n-gram model alone, the blend without a source, the blend.",
        views=views,
        layout=plots.axes("", "tokens per target pass", barmode="group", y_rangemode="tozero"),
    )


def _bars(figures: Figures, names: Sequence[str]) -> list[dict[str, Any]]:
    """Bars of the drafters that were replayed."""
    tasks = [task["task"] for task in figures.tasks]
    traces = []
    for name in names:
        if name in figures.overall["block_efficiency"]:
            values = [task["block_efficiency"][name] for task in figures.tasks]
            intervals = [numbers.interval(task["interval"]["block_efficiency"][name]) for task in figures.tasks]
            family = families.family_of(name)
            traces.append(plots.bars(family.title, tasks, values, series=family.key, intervals=intervals))
    return traces
