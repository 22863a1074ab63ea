"""The gain of each source of the blend, by leaving one out at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rescore.decode.replay import headless
from rescore.decode.replay.names import LM_ALONE, sized, split
from rescore.decode.report import families, numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section
from rescore.decode.report.figures import EQUAL, Figures
from rescore.decode.report.sections import differences

SOURCES = (LM_ALONE, *headless.ABLATIONS, *headless.TUNED_ABLATIONS)


def section(figures: Figures) -> Section:
    return Section(
        key="sources",
        title="What each source adds",
        prose=("The n-gram model alone, the running text alone, and the blend of both.",),
        parts=(_plot(figures), differences.table(figures, of_sources)),
    )


def of_sources(drafter: str, against: str) -> bool:
    """Whether both drafters are blends or a source alone."""
    return {split(drafter)[0], split(against)[0]} <= set(SOURCES)


def _plot(figures: Figures) -> Plot:
    efficiency = figures.overall["block_efficiency"]
    views = [
        PlotView(name=f"{n} nodes{told}", traces=_bars(figures, [sized(name, n) for name in (LM_ALONE, *names)]))
        for told, names in (("", headless.ABLATIONS), (", tuned", headless.TUNED_ABLATIONS))
        for n in EQUAL
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
