"""Entropy of the heads, and block efficiency of the base draft by h_max."""

from __future__ import annotations

from rescore.decode.replay.analyses.entropies import Entropies, TaskEntropies
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table


def section(found: Entropies) -> Section:
    return Section(
        key="entropies",
        title="Entropy",
        cites="figures 2, 3",
        prose=(
            "The entropy of each head's distribution over the whole vocabulary, in nats, over all positions. Later "
            "heads usually have a higher entropy; h_max is the last head up to which the mean never falls. In the "
            "paper, block efficiency rises with h_max over the tasks.",
            _regression(found),
        ),
        parts=(_histograms(found), _scatter(found), _table(found)),
    )


def _regression(found: Entropies) -> str:
    line = found.regression
    if line is None:
        return "Here h_max or block efficiency is equal on all tasks, so there is no regression."
    return (
        f"Here, over {len(found.tasks)} tasks: block efficiency = {line.intercept:.2f} "
        f"{'+' if line.slope >= 0 else '−'} {abs(line.slope):.2f} h_max, Pearson's r = {line.r:.2f}."
    )


def _histograms(found: Entropies) -> Plot:
    middles = ((found.edges[1:] + found.edges[:-1]) / 2).round(3).tolist()
    return Plot(
        title="Distribution of entropy by head",
        alt="Density of the entropy, one curve per head.",
        views=[PlotView(name=task.task, traces=_densities(task, middles)) for task in found.tasks],
        layout=plots.axes("entropy, nats", "density"),
    )


def _densities(task: TaskEntropies, middles: list[float]) -> list[dict]:
    heads = len(task.density)
    return [
        plots.shaded(
            plots.curve(f"head {head + 1}", middles, task.density[head].round(4).tolist(), mode="lines"),
            head / max(heads - 1, 1),
        )
        for head in range(heads)
    ]


def _scatter(found: Entropies) -> Plot:
    x, y = [float(task.h_max) for task in found.tasks], [task.block_efficiency for task in found.tasks]
    traces = [plots.curve("tasks", x, y, mode="markers+text", labels=[task.task for task in found.tasks])]
    if found.regression:
        ends = [min(x), max(x)]
        traces.append(
            plots.curve(
                "least squares",
                ends,
                [found.regression.intercept + found.regression.slope * value for value in ends],
                series="oracle",
                mode="lines",
                dash="dash",
            )
        )
    return Plot(
        title="Block efficiency of the base draft against h_max",
        alt="One point per task, and the least-squares line.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes("h_max", "tokens per target pass", x_dtick=1, x_range=[0, len(found.tasks[0].mean) + 1]),
    )


def _table(found: Entropies) -> Table:
    heads = len(found.tasks[0].mean)
    rows = [
        (
            numbers.text(task.task),
            *(numbers.decimal(float(value)) for value in task.mean),
            numbers.count(task.h_max),
            numbers.decimal(task.block_efficiency),
        )
        for task in found.tasks
    ]
    return Table(
        title="Mean entropy by head",
        headers=("task", *(f"head {head}" for head in range(1, heads + 1)), "h_max", "base draft"),
        rows=rows,
    )
