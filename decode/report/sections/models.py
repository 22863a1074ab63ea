"""The language models: orders of the first, several side by side, a small neural model, and their weights."""

from __future__ import annotations

from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.analyses.efficiency import EfficiencyTable
from rescore.decode.replay.analyses.weights import Weights
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section, Table
from rescore.decode.report.measured import Measured, Neural

TICKS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)


def section(measured: Measured) -> Section | None:
    options, neural = measured.options, measured.neural
    prose: list[str] = []
    found: list[Plot] = []
    tables: list[Table] = []
    if measured.orders:
        prose.append(
            "The best path and the p best paths of the lattice with the language model truncated to lower orders, "
            "which shows how much of the gain needs longer contexts, at the same weight alpha. In the paper, 2-grams "
            "do nearly as well as 4-grams, and in-domain models no better than general ones."
        )
        found.append(_compared(measured.orders, "Orders of the first language model", options.seed))
        if measured.several:
            found.append(_compared(measured.several, "Each language model alone", options.seed))
    if neural:
        prose += _how_neural(neural)
        tables.append(_times(neural, measured))
    if measured.weights:
        prose.append(
            "The weights: block efficiency of the best path over the paper's grid of alpha, on each task's tuning "
            "sequences, relative to the best alpha, and the gain of the chosen weight on the held-out sequences. If "
            "the curves are flat at the top, one weight suits all tasks. Trees under a calibrated q have four weights "
            f"per head ({options.source}): those of the head and of the language model (alpha), a correction for the "
            "heads' bias towards frequent tokens (prior), and an extra cost of tokens that the head does not list "
            "(floor)."
        )
        found.append(_relative(measured.weights))
        tables += [_weights(measured.weights), _calibrations(options.tuned)]
    if not found + tables:
        return None
    return Section(
        key="models",
        title="Language models and weights",
        cites="tables 7, 8, 9" + (", algorithm 2" if neural else ""),
        prose=prose,
        plots=found,
        tables=tables,
    )


def _compared(found: EfficiencyTable, title: str, seed: int) -> Plot:
    resampled = found.resampled(seed)
    names = {(facts["model"], facts["p"]): name for name, facts in found.rows.items() if facts["model"]}
    models, budgets = ([*dict.fromkeys(pair[place] for pair in names)] for place in (0, 1))

    def curves(task: str | None) -> list[Curve]:
        return [
            Curve(
                name="1 path" if p == 1 else f"{p} paths",
                x=models,
                y=[resampled.efficiency(names[model, p], task) for model in models],
                series=series,
            )
            for p, series in zip(budgets, ("paths-base", "paths"))
        ]

    views = plots.views(found.tasks, curves)
    return Plot(title=title, x="model", y="tokens per target pass", views=views, xaxis={"type": "category"})


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
    return Table("Time of neural rescoring", headers, rows, {"verified": ".1f", "block efficiency": ".3f"})


def _relative(found: Weights) -> Plot:
    last = max(len(found.tasks) - 1, 1)
    curves = [
        Curve(
            name=task.task,
            x=found.grid,
            y=[value / max(task.tuned) for value in task.tuned],
            series=place / last,
        )
        for place, task in enumerate(found.tasks)
    ]
    return Plot(
        title="Block efficiency on the tuning sequences, relative to the best weight",
        x="alpha",
        y="share of the best",
        views={"all tasks": curves},
        percent=True,
        xaxis=plots.logarithmic(TICKS),
    )


def _weights(found: Weights) -> Table:
    rows = [
        (task.task, task.best, max(task.tuned), task.heldout, task.gain.interval, task.gain.p_value)
        for task in found.tasks
    ]
    return Table(
        "The weight chosen on the tuning sequences, and its gain on the held-out sequences",
        ("task", "alpha chosen", "tuning", "held out", "gain over base, held out", "p"),
        rows,
        {"tuning": ".3f", "held out": ".3f", "gain over base, held out": ".3f", "p": "p"},
    )


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
    return Table("Weights of calibrated trees", headers, rows)
