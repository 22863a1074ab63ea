"""The weight of the language model: what the paper's grid would choose, task by task."""

from __future__ import annotations

import numpy as np

from rescore.decode.replay.analyses.weights import Weights
from rescore.decode.replay.drafters.names import LM_AND_TEXT
from rescore.decode.report import numbers, plots
from rescore.decode.report.calibrations import TreeCalibrations
from rescore.decode.report.content import Plot, PlotView, Section, Table

TICKS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def section(found: Weights, trees: TreeCalibrations) -> Section:
    return Section(
        key="weights",
        title="Weights",
        cites="table 8",
        prose=(
            "Block efficiency of the best string of the lattice over the paper's grid of alpha, "
            "on each task's tuning sequences, against the best of the grid; the table tells what the chosen "
            "weight brings on the held-out sequences. A flat top says that one weight serves all.",
            f"Trees under a calibrated q have a weight of each kind for every head, {trees.source}: "
            "what head and language model count, how much of the heads' liking for frequent words is "
            "taken back (prior), and what a token costs more that a head does not list (floor).",
        ),
        parts=(_plot(found), _table(found), _calibrations(trees)),
    )


def _calibrations(trees: TreeCalibrations) -> Table:
    """Of closed and open trees, slot by slot, and what the running text's contexts count."""
    rows = []
    for name, calibration in trees.rows():
        text = "not used" if calibration.text is None else ", ".join(f"{strength:.3g}" for strength in calibration.text)
        of_slots = zip(
            *(
                np.broadcast_to(np.array(getattr(calibration, weight)), _slots(trees)).tolist()
                for weight in ("head", "alpha", "prior", "floor")
            )
        )
        for slot, values in enumerate(of_slots if name != LM_AND_TEXT else ()):
            rows.append(
                (
                    numbers.text(name),
                    numbers.count(slot + 2),
                    *(numbers.decimal(value) for value in values),
                    numbers.text(text),
                )
            )
    headers = ("trees", "head", "heads' weight", "alpha", "prior", "floor", "running text's strengths")
    return Table(title="Weights of calibrated trees", headers=headers, rows=rows)


def _slots(trees: TreeCalibrations) -> int:
    return max(
        len(getattr(calibration, weight))
        for _, calibration in trees.rows()
        for weight in ("head", "alpha", "prior", "floor")
    )


def _plot(found: Weights) -> Plot:
    last = max(len(found.tasks) - 1, 1)
    traces = [
        plots.shaded(
            plots.curve(task.task, list(found.grid), [round(value / max(task.tuned), 5) for value in task.tuned]),
            place / last,
        )
        for place, task in enumerate(found.tasks)
    ]
    return Plot(
        title="Block efficiency on the tuning sequences, relative to the best weight",
        alt="A curve for each task over alpha, 100% at the best weight.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes(
            "alpha",
            "of the best",
            **plots.powers([alpha for alpha in found.grid if alpha in TICKS]),
            y_tickformat=".1%",
        ),
    )


def _table(found: Weights) -> Table:
    rows = []
    for task in found.tasks:
        gain = task.gain.interval
        pair = None if gain.low is None or gain.high is None else (gain.low, gain.high)
        rows.append(
            (
                numbers.text(task.task),
                numbers.decimal(task.best),
                numbers.decimal(max(task.tuned), 3),
                numbers.decimal(task.heldout, 3),
                numbers.decimal(gain.value, 3, pair),
                numbers.p_value(task.gain.p_value),
            )
        )
    headers = ("task", "alpha chosen", "tuning", "held out", "gain over base, held out", "p")
    return Table(
        title="The weight chosen on the tuning sequences, and what it brings on the rest", headers=headers, rows=rows
    )
