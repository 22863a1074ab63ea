"""The heads' candidates: the rank of the true token, the oracle's bound, entropy, and repetition in drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.analyses.efficiency import EfficiencyTable
from rescore.decode.replay.analyses.entropies import Entropies
from rescore.decode.replay.analyses.recall import TaskRecall
from rescore.decode.replay.figures import Figures
from rescore.decode.report import plots
from rescore.decode.report.content import Plot, PlotView, Section, Table
from rescore.decode.report.measured import Measured

RANKS = {
    "heads": ("heads, all positions", "tree-base", "all"),
    "on_path": ("on the true path, heads", "paths-base", "path"),
    "rescored": ("on the true path, rescored", "tree", "rescored"),
}


def section(measured: Measured) -> Section | None:
    if not (measured.oracle and measured.entropies):
        return None
    return Section(
        key="heads",
        title="The heads",
        cites="tables 3, 4, 5, 9, 10, figures 2, 3, 6",
        prose=(
            "Recall@k of a head is the share of positions at which its first k candidates hold the true token. Curves "
            "on the true path count only positions whose earlier true tokens are all in the lattice, as a draft must "
            "contain them to reach the slot. The gap between recall@1 before and after rescoring is the gain of the "
            "language model; the gap to the dashed line is the share in the lattice that is still misranked.",
            "The oracle drafts the longest prefix of the true text that the first k candidates of each head contain; "
            "k = 1 is the base draft. If its curves still rise at the right, more candidates would help; if those of "
            "few and of many heads coincide, the later heads add nothing.",
            "Entropy is that of each head's distribution over the whole vocabulary, in nats, over all positions. h_max "
            "is the last head up to which the mean never falls; in the paper, block efficiency rises with it over the "
            f"tasks. {_regression(measured.entropies)}",
            "Heads do not see each other's choice, so drafts repeat tokens. The rescored draft wins a step if it is "
            "accepted further than the base draft. A win that removes a repetition is a repair; a loss that introduces "
            "one is a regression.",
        ),
        parts=(
            *_recall(measured.recall),
            *_oracle(measured.oracle, measured.options.seed),
            *_entropies(measured.entropies),
            *_repetition(measured.figures),
        ),
    )


def _recall(found: Sequence[TaskRecall]) -> tuple[Plot, Table]:
    tasks = [one.task for one in found]
    plot = Plot(
        title="Recall@1 by head, and the share in the lattice",
        alt="Recall at 1 over the heads: at all positions, on the true path, and on the true path after rescoring.",
        views=plots.views(
            tasks,
            lambda task: _recall_curves(_rates([one for one in found if task in (None, one.task)])),
            whole="all tasks",
        ),
        layout=plots.axes("head", "share of positions", y_tickformat=".0%", x_dtick=1),
    )
    rates = _rates(found)
    first, width = rates["heads"][1].shape
    shown = sorted({k for k in (1, 2, 4, width) if k <= width})
    rows = [
        (
            head,
            *(
                of[head][k - 1] if head in of else None
                for of in (dict(zip(heads, map(_known, table))) for heads, table in rates.values())
                for k in shown
            ),
        )
        for head in rates["heads"][0]
    ]
    headers = ("head", *(f"{column} @{k}" for _, _, column in RANKS.values() for k in shown))
    title = "Recall@k at all positions, on the true path, and on the true path rescored; all tasks together"
    return plot, Table.of(title, headers, rows, ".1%")


Rates = dict[str, tuple[list[int], NDArray[np.float64]]]  # kind: heads, and recall [heads, K]


def _rates(found: Sequence[TaskRecall]) -> Rates:
    """Recall over all positions of these tasks, NaN for heads without positions."""
    out = {}
    for kind in RANKS:
        parts = [getattr(task, kind) for task in found]
        hits, total = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("hits", "total"))
        with np.errstate(invalid="ignore", divide="ignore"):
            out[kind] = (list(range(parts[0].first, parts[0].first + len(total))), hits / total[:, None])
    return out


def _recall_curves(rates: Rates) -> list[dict[str, Any]]:
    traces = [
        plots.curve(title, rates[kind][0], _known(rates[kind][1][:, 0], 5), series=series)
        for kind, (title, series, _) in RANKS.items()
    ]
    heads, table = rates["on_path"]
    within = plots.curve(
        "on the true path, in the lattice", heads, _known(table[:, -1], 5), series="oracle", dash="dash", mode="lines"
    )
    return [*traces, within]


def _known(values: NDArray[np.float64], digits: int = 12) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), digits) for value in values]


def _oracle(found: EfficiencyTable, seed: int) -> tuple[Plot, Table, Table]:
    resampled, tasks = found.resampled(seed), found.tasks
    names = {(facts["k"], facts["heads"]): name for name, facts in found.rows.items()}
    widths, heads = (sorted({pair[place] for pair in names}) for place in (0, 1))

    def curves(task: str | None) -> list[dict[str, Any]]:
        return [
            plots.shaded(
                plots.curve(f"{n} heads", widths, [resampled.efficiency(names[k, n], task) for k in widths]),
                place / max(len(heads) - 1, 1),
            )
            for place, n in enumerate(heads)
        ]

    plot = Plot(
        title="Oracle block efficiency against candidates per head",
        alt="Curves of oracle block efficiency over the number of candidates k, one per number of heads.",
        views=plots.views(tasks, curves),
        layout=plots.axes("candidates per head, k", "tokens per target pass", **plots.powers(widths)),
    )
    most = heads[-1]
    by_task = Table.of(
        f"Oracle block efficiency of all {most} heads",
        ("k", *tasks, "mean"),
        [(k, *(resampled.efficiency(names[k, most], task) for task in (*tasks, None))) for k in widths],
        {"mean": ".3f"},
    )
    by_heads = Table.of(
        "Oracle block efficiency with fewer heads, mean over tasks",
        ("k", *(f"{n} heads" for n in heads)),
        [(k, *(resampled.efficiency(names[k, n]).value for n in heads)) for k in widths],
        ".3f",
    )
    return plot, by_task, by_heads


def _regression(found: Entropies) -> str:
    line = found.regression
    if line is None:
        return "Here h_max or block efficiency is equal on all tasks, so there is no regression."
    return (
        f"Here, over {len(found.tasks)} tasks: block efficiency = {line.intercept:.2f} "
        f"{'+' if line.slope >= 0 else '−'} {abs(line.slope):.2f} h_max, Pearson's r = {line.r:.2f}."
    )


def _entropies(found: Entropies) -> tuple[Plot, Plot, Table]:
    heads = range(len(found.tasks[0].mean))
    middles = ((found.edges[1:] + found.edges[:-1]) / 2).round(3).tolist()
    densities = [
        PlotView(
            name=task.task,
            traces=[
                plots.shaded(
                    plots.curve(f"head {head + 1}", middles, task.density[head].round(4).tolist(), mode="lines"),
                    head / max(len(heads) - 1, 1),
                )
                for head in heads
            ],
        )
        for task in found.tasks
    ]
    histograms = Plot(
        title="Distribution of entropy by head",
        alt="Density of the entropy, one curve per head.",
        views=densities,
        layout=plots.axes("entropy, nats", "density"),
    )
    x, y = [float(task.h_max) for task in found.tasks], [task.block_efficiency for task in found.tasks]
    traces = [plots.curve("tasks", x, y, mode="markers+text", labels=[task.task for task in found.tasks])]
    if found.regression:
        ends = [min(x), max(x)]
        line = [found.regression.intercept + found.regression.slope * value for value in ends]
        traces.append(plots.curve("least squares", ends, line, series="oracle", mode="lines", dash="dash"))
    scatter = Plot(
        title="Block efficiency of the base draft against h_max",
        alt="One point per task, and the least-squares line.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes("h_max", "tokens per target pass", x_dtick=1, x_range=[0, len(heads) + 1]),
    )
    table = Table.of(
        "Mean entropy by head",
        ("task", *(f"head {head + 1}" for head in heads), "h_max", "base draft"),
        [(task.task, *task.mean.tolist(), int(task.h_max), task.block_efficiency) for task in found.tasks],
    )
    return histograms, scatter, table


def _repetition(figures: Figures) -> list[Plot | Table]:
    """Of the base draft and of the rescored one, the best path of the lattice with the language model."""
    tasks, of = figures.task_names, {task["task"]: task["repetition"] for task in figures.tasks}
    keys = [key for key in ("base", "rescored") if all(key in task for task in of.values())]
    plot = Plot(
        title="Neighbouring draft tokens that are equal",
        alt="Bars of the share of equal neighbours in the base and the rescored draft, one pair per task.",
        views=[
            PlotView(
                name="all tasks",
                traces=[
                    plots.bars(
                        key, tasks, [of[task][key]["consecutive"] for task in tasks], series=plots.style(key)["series"]
                    )
                    for key in keys
                ],
            )
        ],
        layout=plots.axes("", "equal neighbours", y_tickformat=".0%", barmode="group"),
    )
    measures = {"equal": ("consecutive", ".1%"), "longest run": ("max_run", ".2f")}
    repetition = Table.of(
        "Repetition before and after rescoring",
        ("task", *(f"{title}, {key}" for title in measures for key in keys)),
        [(task, *(of[task][key][name] for name, _ in measures.values() for key in keys)) for task in tasks],
        {f"{title}, {key}": form for title, (_, form) in measures.items() for key in keys},
    )
    return [
        plot,
        repetition,
        *([_duels(figures)] if all("rescored_against_base" in task for task in figures.tasks) else []),
    ]


def _duels(figures: Figures) -> Table:
    rows = []
    for task in figures.tasks:
        duel = task["rescored_against_base"]
        shares = (duel[a] / duel[b] if duel[b] else None for a, b in (("repairs", "wins"), ("regressions", "losses")))
        rows.append((task["task"], *(duel[key] for key in ("wins", "ties", "losses")), *shares))
    return Table.of(
        "Steps at which the rescored draft wins, ties or loses",
        ("task", "wins", "ties", "losses", "repairs, of wins", "regressions, of losses"),
        rows,
        ".1%",
    )
