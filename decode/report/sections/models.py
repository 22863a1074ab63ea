"""The language models: orders of the first, several side by side, a small neural model, and their weights."""

from __future__ import annotations

from typing import Any

from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.analyses.efficiency import EfficiencyTable
from rescore.decode.replay.analyses.weights import Weights
from rescore.decode.report import plots
from rescore.decode.report.content import Plot, PlotView, Section, Table
from rescore.decode.report.measured import Measured, Neural

TICKS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def section(measured: Measured) -> Section | None:
    options, neural = measured.options, measured.neural
    prose: list[str] = []
    parts: list[Plot | Table] = []
    if measured.orders:
        prose.append(
            "The best path and the p best paths of the lattice with the language model truncated to lower orders, "
            "which shows how much of the gain needs longer contexts, at the same weight alpha. In the paper, 2-grams "
            "do nearly as well as 4-grams, and in-domain models no better than general ones."
        )
        parts += _compared(measured.orders, "Orders of the first language model", options.seed)
        if measured.several:
            parts += _compared(measured.several, "Each language model alone", options.seed)
    if neural:
        prose += _how_neural(neural)
        parts.append(_times(neural, measured))
    if measured.weights:
        prose.append(
            "The weights: block efficiency of the best path over the paper's grid of alpha, on each task's tuning "
            "sequences, relative to the best alpha, and the gain of the chosen weight on the held-out sequences. If "
            "the curves are flat at the top, one weight suits all tasks. Trees under a calibrated q have four weights "
            f"per head ({options.source}): those of the head and of the language model (alpha), a correction for the "
            "heads' bias towards frequent tokens (prior), and an extra cost of tokens that the head does not list "
            "(floor)."
        )
        parts += [*_weights(measured.weights), _calibrations(options.tuned)]
    if not parts:
        return None
    return Section(
        key="models",
        title="Language models and weights",
        cites="tables 7, 8, 9" + (", algorithm 2" if neural else ""),
        prose=prose,
        parts=parts,
    )


def _compared(found: EfficiencyTable, title: str, seed: int) -> tuple[Plot, Table]:
    resampled, tasks = found.resampled(seed), found.tasks
    names = {(facts["model"], facts["p"]): name for name, facts in found.rows.items() if facts["model"]}
    models, budgets = ([*dict.fromkeys(pair[place] for pair in names)] for place in (0, 1))

    def curves(task: str | None) -> list[dict[str, Any]]:
        return [
            plots.curve(
                "1 path" if p == 1 else f"{p} paths",
                models,
                [resampled.efficiency(names[model, p], task) for model in models],
                series=series,
            )
            for p, series in zip(budgets, ("paths-base", "paths"))
        ]

    plot = Plot(
        title=title,
        alt="Block efficiency of the best path and of the p best paths with each language model.",
        views=plots.views(tasks, curves),
        layout=plots.axes("", "tokens per target pass", x_type="category"),
    )
    rows = [(name, *(resampled.efficiency(name, task) for task in (*tasks, None))) for name in found.rows]
    return plot, Table.of(title, ("draft", *tasks, "mean"), rows, {"mean": ".3f"})


def _how_neural(neural: Neural) -> list[str]:
    found = [
        f"The lattice is also rescored slot by slot with {neural.name} at weight {neural.alpha:g}, which is not tuned: "
        "each slot takes the best candidate given the earlier choices. Paths share no states of a neural model, so "
        "its globally best path cannot be searched for.",
        f"It ran on {neural.machine} with all sequences of a block as a batch. Only lattices that decoding visits are "
        "rescored. Times are wall-clock times and include reading the text. Its differences from the best paths with "
        "the language model are in the table of paired differences.",
    ]
    if "neural beam" in neural.names:
        found[0] += (
            f" The beam holds {neural.paths} paths. All prefixes it held are verified as a tree, so compare it with "
            "trees of as many nodes rather than with paths."
        )
    return found


def _times(neural: Neural, measured: Measured) -> Table:
    overall = measured.figures.overall
    rows = [
        (
            name,
            sum(task.tallies[name].steps for task in measured.result.tasks),
            measured.result.ms_per_lattice(name),
            overall["verified_per_pass"][name],
            overall["block_efficiency"][name],
        )
        for name in neural.names
    ]
    headers = ("draft", "lattices", "ms per lattice", "verified", "block efficiency")
    return Table.of("Time of neural rescoring", headers, rows, {"verified": ".1f", "block efficiency": ".3f"})


def _weights(found: Weights) -> tuple[Plot, Table]:
    last = max(len(found.tasks) - 1, 1)
    traces = [
        plots.shaded(
            plots.curve(task.task, found.grid, [round(value / max(task.tuned), 5) for value in task.tuned]),
            place / last,
        )
        for place, task in enumerate(found.tasks)
    ]
    plot = Plot(
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
    rows = [
        (task.task, task.best, max(task.tuned), task.heldout, task.gain.interval, task.gain.p_value)
        for task in found.tasks
    ]
    table = Table.of(
        "The weight chosen on the tuning sequences, and its gain on the held-out sequences",
        ("task", "alpha chosen", "tuning", "held out", "gain over base, held out", "p"),
        rows,
        {"tuning": ".3f", "held out": ".3f", "gain over base, held out": ".3f", "p": "p"},
    )
    return plot, table


def _calibrations(settings: Settings | None) -> Table:
    """The weights of closed and open trees for each slot, and whether the running text is read."""
    trees = {"blend": DEFAULT}
    if settings and settings.trees:
        trees |= {"tree tuned": settings.calibration("closed"), "blend tuned": settings.calibration("open")}
    rows = [
        (
            name,
            slot if len(calibration.head) > 1 else "all",
            *values,
            "not used" if calibration.text is None else "used",
        )
        for name, calibration in trees.items()
        for slot, values in enumerate(
            zip(*(getattr(calibration, weight) for weight in ("head", "alpha", "prior", "floor"))), 2
        )
    ]
    headers = ("trees", "head", "heads' weight", "alpha", "prior", "floor", "running text")
    return Table.of("Weights of calibrated trees", headers, rows)
