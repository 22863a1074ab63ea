"""Block efficiency against the number of paths verified in parallel."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.names import BASE, PARALLEL_BASE, PARALLEL_RESCORED, RESCORED, sized
from rescore.decode.replay.figures import Figures
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

CURVES = ((RESCORED, PARALLEL_RESCORED, "paths"), (BASE, PARALLEL_BASE, "paths-base"))


PATHS = (2, 4, 8, 16, 32)  # replayed beside 1 and p


def section(figures: Figures, p: int) -> Section:
    """p: number of paths of the drafters parallel base and parallel rescored."""
    views = [
        PlotView(name="mean over tasks", traces=_traces(figures.overall, p)),
        *(PlotView(name=task["task"], traces=_traces(task, p)) for task in figures.tasks),
    ]
    budgets = [float(budget) for budget in paths("", "x", p).values()]
    return Section(
        key="parallel",
        title="Parallel paths",
        cites="figure 7",
        prose=(
            "The p best paths of the lattice, verified as a batch: the paper's method. Each path adds T tokens to "
            "verify, although most paths share a prefix.",
        ),
        parts=(
            Plot(
                title="Block efficiency against paths",
                alt="Two curves over the number of paths: with the language model and without.",
                views=views,
                layout=plots.axes("paths, p", "tokens per target pass", **plots.powers(budgets)),
            ),
            _table(figures, p),
        ),
    )


def _traces(values: dict[str, Any], p: int) -> list[dict[str, Any]]:
    traces = []
    for one, many, series in CURVES:
        names = {name: budget for name, budget in paths(one, many, p).items() if name in values["block_efficiency"]}
        if names:
            y = [values["block_efficiency"][name] for name in names]
            intervals = [numbers.interval(values["interval"]["block_efficiency"].get(name)) for name in names]
            traces.append(
                plots.curve(many, [float(budget) for budget in names.values()], y, series=series, intervals=intervals)
            )
    return traces


def _table(figures: Figures, p: int) -> Table:
    rows = []
    for one, many, _ in CURVES:
        for name, budget in paths(one, many, p).items():
            if name in figures.overall["block_efficiency"]:
                per_task = [
                    numbers.decimal(
                        task["block_efficiency"][name],
                        2,
                        numbers.interval(task["interval"]["block_efficiency"].get(name)),
                    )
                    for task in figures.tasks
                ]
                mean = numbers.decimal(
                    figures.overall["block_efficiency"][name],
                    3,
                    numbers.interval(figures.overall["interval"]["block_efficiency"].get(name)),
                )
                rows.append((numbers.text(many), numbers.count(budget), *per_task, mean))
    return Table(
        title="Block efficiency of the p best paths",
        headers=("draft", "p", *(task["task"] for task in figures.tasks), "mean"),
        rows=rows,
    )


def paths(one: str, many: str, p: int) -> dict[str, int]:
    """Numbers of paths by row name."""
    return {one: 1, **{many if budget == p else sized(many, budget): budget for budget in sorted({*PATHS, p} - {1})}}
