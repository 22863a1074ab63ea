"""The language models: orders of the first, several side by side, a small neural model, and their weights."""

from __future__ import annotations

from rescore.decode.replay.analyses.efficiency import EfficiencyTable, Weights
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section, Table
from rescore.decode.report.measured import Measured, Neural


def section(measured: Measured) -> Section | None:
    options, neural = measured.options, measured.neural
    prose: list[str] = []
    found: list[Plot] = []
    if measured.orders:
        prose.append(
            "The best path and the p best paths of the lattice with the first language model truncated to lower "
            "orders, which shows how much of the gain needs longer contexts, and with each other model alone, at the "
            "same weight alpha. In the paper, 2-grams do nearly as well as 4-grams."
        )
        found.append(_compared(measured.orders, options.seed))
    if neural:
        prose.append(_how_neural(neural, measured))
    if measured.weights:
        prose.append(
            "The weights: of the paper's grid of alpha the one whose best paths have the highest block efficiency on a "
            "task's tuning sequences, and its gain on the held-out ones. Trees under a calibrated q have weights of "
            f"their own: {options.source}."
        )
    if not prose:
        return None
    return Section(
        key="models",
        title="Language models and weights",
        prose=prose,
        plots=found,
        tables=[_weights(measured.weights)] if measured.weights else [],
    )


def _compared(found: EfficiencyTable, seed: int) -> Plot:
    resampled = found.resampled(seed)
    names = {(facts["model"], facts["p"]): name for name, facts in found.rows.items() if facts["model"]}
    models, budgets = ([*dict.fromkeys(pair[place] for pair in names)] for place in (0, 1))

    def curves(task: str | None) -> list[Curve]:
        values = {
            "1 path" if p == 1 else f"{p} paths": [resampled.efficiency(names[model, p], task) for model in models]
            for p in budgets
        }
        return plots.ordered(values, models)

    return Plot(
        title="Language models by order",
        x="model",
        y="tokens per target pass",
        views=plots.views(found.tasks, curves),
        xaxis={"type": "category"},
    )


def _how_neural(neural: Neural, measured: Measured) -> str:
    times = " and ".join(f"{measured.result.ms_per_lattice(name):.2f} ms ({name})" for name in neural.names)
    beam = (
        f" The beam holds {neural.paths} paths. All prefixes it held are verified as a tree, so compare it with trees "
        "of as many nodes rather than with paths."
    )
    return (
        f"The lattice is also rescored slot by slot with {neural.name} at weight {neural.alpha:g}, which is not tuned: "
        f"each slot takes the best candidate given the earlier choices. On {neural.machine}, with all sequences of a "
        f"block as a batch, a lattice took {times}, reading the text included.{beam if neural.paths > 1 else ''}"
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
