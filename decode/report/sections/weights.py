"""The weight of the language model: what the paper's grid would choose, task by task."""

from __future__ import annotations

from rescore.decode.analyses.weights import Weights
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, Section, Table, View

TICKS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def section(found: Weights) -> Section:
    return Section(
        key="weights",
        title="Weights",
        cites="table 8",
        prose=(
            "Block efficiency of the best string of the lattice over the paper's grid of alpha, on each task's tuning sequences, against the best of the grid; the table tells what the chosen "
            "weight brings on the held-out sequences. A flat top says that one weight serves all.",
        ),
        parts=(_plot(found), _table(found)),
    )


def _plot(found: Weights) -> Plot:
    last = max(len(found.tasks) - 1, 1)
    traces = [
        plots.shaded(plots.curve(task.task, list(found.grid), [round(value / max(task.tuned), 5) for value in task.tuned]), place / last)
        for place, task in enumerate(found.tasks)
    ]
    return Plot(
        title="Block efficiency on the tuning sequences, relative to the best weight",
        alt="A curve for each task over alpha, 100% at the best weight.",
        views=[View(name="all tasks", traces=traces)],
        layout=plots.axes("alpha", "of the best", **plots.powers([alpha for alpha in found.grid if alpha in TICKS]), y_tickformat=".1%"),
    )


def _table(found: Weights) -> Table:
    rows = []
    for task in found.tasks:
        gain = task.gain.interval
        pair = None if gain.low is None or gain.high is None else (gain.low, gain.high)
        rows.append((
            numbers.text(task.task), numbers.decimal(task.best), numbers.decimal(max(task.tuned), 3), numbers.decimal(task.heldout, 3),
            numbers.decimal(gain.value, 3, pair), numbers.p_value(task.gain.p_value),
        ))
    headers = ("task", "alpha chosen", "tuning", "held out", "gain over base, held out", "p")
    return Table(title="The weight chosen on the tuning sequences, and what it brings on the rest", headers=headers, rows=rows)
