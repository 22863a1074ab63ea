"""The weight of the language model, chosen on the paper's grid for each task."""

from __future__ import annotations

from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.names import BLEND, TUNED_BLEND, TUNED_TREE
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.analyses.weights import Weights
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

TICKS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def section(found: Weights, settings: Settings | None, source: str) -> Section:
    """source: of the settings' weights, as a phrase."""
    return Section(
        key="weights",
        title="Weights",
        cites="table 8",
        prose=(
            "Block efficiency of the best path of the lattice over the paper's grid of alpha, on each task's tuning "
            "sequences, relative to the best alpha. The table has the gain of the chosen weight on the held-out "
            "sequences. If the curves are flat at the top, one weight suits all tasks.",
            f"Trees under a calibrated q have four weights per head ({source}): those of the head and of the "
            "language model (alpha), a correction for the heads' bias towards frequent tokens (prior), and an extra "
            "cost of tokens that the head does not list (floor).",
        ),
        parts=(_plot(found), _table(found), _calibrations(settings)),
    )


def _calibrations(settings: Settings | None) -> Table:
    """The weights of closed and open trees for each slot, and whether the running text is read."""
    trees = {BLEND: DEFAULT}
    if settings and settings.trees:
        trees |= {TUNED_TREE: settings.calibration("closed"), TUNED_BLEND: settings.calibration("open")}
    rows = []
    for name, calibration in trees.items():
        text = "not used" if calibration.text is None else "used"
        of_slots = zip(*(getattr(calibration, weight) for weight in ("head", "alpha", "prior", "floor")))
        for slot, values in enumerate(of_slots):
            rows.append(
                (
                    numbers.text(name),
                    numbers.count(slot + 2) if len(calibration.head) > 1 else numbers.text("all"),
                    *(numbers.decimal(value) for value in values),
                    numbers.text(text),
                )
            )
    headers = ("trees", "head", "heads' weight", "alpha", "prior", "floor", "running text")
    return Table(title="Weights of calibrated trees", headers=headers, rows=rows)


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
        alt="Curves over alpha, one per task, with 100% at the best weight.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes(
            "alpha",
            "share of the best",
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
        title="The weight chosen on the tuning sequences, and its gain on the held-out sequences",
        headers=headers,
        rows=rows,
    )
