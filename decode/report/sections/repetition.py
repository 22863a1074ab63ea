"""Repetition in drafts before and after rescoring."""

from __future__ import annotations

from rescore.decode.draft.names import BASE, RESCORED
from rescore.decode.replay.figures import Figures
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

SERIES = {BASE: "paths-base", RESCORED: "paths"}


def section(figures: Figures) -> Section:
    """The rescored draft is the best path of the lattice with the language model."""
    parts: list[Plot | Table] = [_plot(figures), _repetition(figures)]
    if all("rescored_against_base" in task for task in figures.tasks):
        parts.append(_duels(figures))
    return Section(
        key="repetition",
        title="Repetition",
        cites="tables 3, 5",
        prose=(
            "Heads do not see each other's choice, so drafts repeat tokens. The plot shows the share of neighbouring "
            "draft tokens that are equal; the longest run is a mean over drafts.",
            "The rescored draft wins a step if it is accepted further than the base draft. A win that removes a "
            "repetition is a repair; a loss that introduces one is a regression.",
        ),
        parts=parts,
    )


def _plot(figures: Figures) -> Plot:
    names = [task["task"] for task in figures.tasks]
    traces = [
        plots.bars(key, names, [task["repetition"][key]["consecutive"] for task in figures.tasks], series=series)
        for key, series in SERIES.items()
        if all(key in task["repetition"] for task in figures.tasks)
    ]
    return Plot(
        title="Neighbouring draft tokens that are equal",
        alt="Bars of the share of equal neighbours in the base and the rescored draft, one pair per task.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes("", "equal neighbours", y_tickformat=".0%", barmode="group"),
    )


def _repetition(figures: Figures) -> Table:
    keys = [key for key in SERIES if all(key in task["repetition"] for task in figures.tasks)]
    rows = [
        (
            numbers.text(task["task"]),
            *(numbers.percent(task["repetition"][key]["consecutive"], 1) for key in keys),
            *(numbers.decimal(task["repetition"][key]["max_run"]) for key in keys),
        )
        for task in figures.tasks
    ]
    headers = ("task", *(f"equal, {key}" for key in keys), *(f"longest run, {key}" for key in keys))
    return Table(title="Repetition before and after rescoring", headers=headers, rows=rows)


def _duels(figures: Figures) -> Table:
    rows = []
    for task in figures.tasks:
        duel = task["rescored_against_base"]
        repairs, regressions = (
            duel[key] / duel[of] if duel[of] else None for key, of in (("repairs", "wins"), ("regressions", "losses"))
        )
        rows.append(
            (
                numbers.text(task["task"]),
                *(numbers.count(duel[key]) for key in ("wins", "ties", "losses")),
                numbers.percent(repairs, 1),
                numbers.percent(regressions, 1),
            )
        )
    return Table(
        title="Steps at which the rescored draft wins, ties or loses",
        headers=("task", "wins", "ties", "losses", "repairs, of wins", "regressions, of losses"),
        rows=rows,
    )
