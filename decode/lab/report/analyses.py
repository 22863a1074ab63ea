"""What the drafts and the heads do, by position, and the language models: analyses behind the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.lab.replay import headline
from rescore.decode.lab.replay.analyses.efficiency import EfficiencyTable
from rescore.decode.lab.replay.analyses.lost_tokens import LostTokens
from rescore.decode.lab.replay.analyses.recall import Recall, TaskRecall
from rescore.decode.lab.replay.analyses.reliability import Reliability
from rescore.decode.lab.replay.figures import Figures
from rescore.decode.lab.replay.run import DumpResult
from rescore.decode.lab.report import plots
from rescore.decode.lab.report.content import Curve, Plot, Section, Table
from rescore.decode.lab.report.measured import BUDGET, LARGER, Measured, Neural

SLOTS = 16  # in the plot of acceptance by position, without heads
LEAST_PASSES, LEAST_NODES = 30, 30  # bins of fewer are not plotted
# Title and series of each cause of lost tokens.
LOST = {
    "absent": ("not in the lattice", "other"),
    "lm": ("misranked by the LM", "paths-base"),
    "budget": ("lost to the budget", "lm-alone"),
    "heads": ("ranked too low", "tree-base"),
}
TICKS = (0.001, 0.01, 0.1, 1.0)
DASHES = ("solid", "dot", "dashdot", "dash")  # drafters of one colour
# The curves of recall: name, series, kind of recall, and whether among all candidates rather than the first.
RECALLS = (
    ("heads, all positions", "tree-base", "heads", False),
    ("on the true path, heads", "paths-base", "on_path", False),
    ("on the true path, rescored", "tree", "rescored", False),
    ("on the true path, in the lattice", "oracle", "on_path", True),
)


def drafts_section(measured: Measured) -> Section:
    prose = [
        "Where a curve falls steeply, later positions are rarely reached. Along the text: a longer running text offers "
        f"more to copy from; bins of fewer than {LEAST_PASSES} passes are left out."
    ]
    found = [_acceptance(measured), _along_text(measured.result)]
    if measured.lost:
        prose.append(
            f"Lost tokens, by why a tree of {BUDGET} nodes was rejected there: the true token is not among the "
            "candidates; else the tree of the heads alone has it, so the language model misranked it; else a tree of "
            f"{LARGER} nodes has it, so it is lost to the budget; else heads and language model rank it too low."
        )
        found.append(_lost(measured.lost))
    if measured.q:
        prose.append(
            f"Calibration: the nodes drafted by {measured.q_of}, binned by the probability q of their prefix, and the "
            "share of them that was accepted. Below the dashed line q is overconfident, above it underconfident."
        )
        found.append(_reliability(measured.q))
    return Section(key="drafts", title="The drafts", prose=prose, plots=found)


def _counted(result: DumpResult, counts: str, task: str | None) -> Iterator[tuple[dict[str, Any], NDArray[np.int64]]]:
    """Name, series and dash of the main drafters' curves, and their `Tally.by_slot` or `by_length`, of a task or of all
    tasks together.
    """
    tallies = [one.tallies for one in result.tasks if task in (None, one.task)]
    seen = Counter[str]()
    for name in headline.leading(result.names):
        series, _ = plots.style(name)
        style = {"name": name, "series": series, "dash": DASHES[seen[series] % len(DASHES)]}
        yield style, np.sum([getattr(of[name], counts) for of in tallies], axis=0)
        seen[series] += 1


def _acceptance(measured: Measured) -> Plot:
    slots = measured.dump.slots or SLOTS

    def curves(task: str | None) -> list[Curve]:
        found = []
        for style, (drafts, accepted, _) in _counted(measured.result, "by_slot", task):
            shares = [a / n if n else None for n, a in zip(drafts[:slots].tolist(), accepted.tolist())]
            found.append(Curve(x=[*range(1, slots + 1)], y=shares, **style))
        return found

    return Plot(
        title="Drafts accepted up to a position",
        x="position in the draft",
        y="share of drafts",
        views=plots.views(measured.figures.task_names, curves, whole="all tasks"),
        percent=True,
        xaxis={"dtick": 1},
        yaxis={"rangemode": "tozero"},
    )


def _along_text(result: DumpResult) -> Plot:
    def curves(task: str | None) -> list[Curve]:
        found = []
        for style, (passes, tokens) in _counted(result, "by_length", task):
            bins = np.flatnonzero(passes >= LEAST_PASSES)
            texts = [f"{style['name']}, {count:,} passes" for count in passes[bins].tolist()]
            y = (tokens[bins] / passes[bins]).tolist()
            found.append(Curve(x=[2**place for place in bins.tolist()], y=y, texts=texts, **style))
        return found

    return Plot(
        title="Tokens per pass by tokens generated before the pass",
        x="tokens generated before the pass, from",
        y="tokens per target pass",
        views=plots.views([task.task for task in result.tasks], curves, whole="all tasks"),
        xaxis=plots.logarithmic(),
    )


def _lost(found: Sequence[LostTokens]) -> Plot:
    shares = [one.to_json()["tokens_share"] or {} for one in found]
    tasks = [one.task for one in found]
    curves = [
        Curve(name=title, x=tasks, y=[of.get(cause) for of in shares], series=series, mode="bars")
        for cause, (title, series) in LOST.items()
    ]
    return Plot(
        title="Lost tokens by cause",
        x="task",
        y="share of lost tokens",
        views={"all tasks": curves},
        percent=True,
        stacked=True,
    )


def _reliability(found: Sequence[Reliability]) -> Plot:
    def curves(task: str | None) -> list[Curve]:
        chosen = [one for one in found if task in (None, one.task)]
        nodes, expected, accepted = (
            np.sum([getattr(one, name) for one in chosen], axis=0) for name in ("nodes", "expected", "accepted")
        )
        kept = (nodes >= LEAST_NODES) & (accepted > 0)
        x, y = ((of[kept] / nodes[kept]).tolist() for of in (expected, accepted))
        return [
            Curve(name="accepted", x=x, y=y, series="open", texts=[f"{n:,} nodes" for n in nodes[kept].tolist()]),
            Curve(name="calibrated", x=x, y=x, series="oracle", dash="dash", mode="lines"),
        ]

    return Plot(
        title="Accepted share of nodes against their q",
        x="q of the prefix",
        y="share accepted",
        views=plots.views([one.task for one in found], curves, whole="all tasks"),
        xaxis=plots.logarithmic(TICKS),
        yaxis=plots.logarithmic(TICKS),
    )


def heads_section(measured: Measured) -> Section | None:
    if not measured.oracle:
        return None
    figures = measured.figures
    return Section(
        key="heads",
        title="The heads",
        prose=(
            "Recall@1 of a head is the share of positions at which its first candidate is the true token; on the true "
            "path only those count whose earlier true tokens are all in the lattice. The gap to the dashed line is in "
            "the lattice and misranked. The oracle drafts the longest prefix of the true text that the first k "
            "candidates of each head contain; k = 1 is the base draft.",
            "Heads do not see each other's choice, so drafts repeat tokens. A win of the rescored draft that removes a "
            "repetition is a repair, a loss that introduces one a regression.",
        ),
        plots=(_recall(measured.recall), _oracle(measured.oracle, measured.options.seed)),
        tables=[_repetition(figures)] if all("rescored_against_base" in task for task in figures.tasks) else [],
    )


def _recall(found: Sequence[TaskRecall]) -> Plot:
    def curves(task: str | None) -> list[Curve]:
        chosen = [one for one in found if task in (None, one.task)]
        return [
            _recall_curve([getattr(one, kind) for one in chosen], name, series, k) for name, series, kind, k in RECALLS
        ]

    return Plot(
        title="Recall@1 by head, and the share in the lattice",
        x="head",
        y="share of positions",
        views=plots.views([one.task for one in found], curves, whole="all tasks"),
        percent=True,
        xaxis={"dtick": 1},
    )


def _recall_curve(parts: Sequence[Recall], name: str, series: str, whole: bool) -> Curve:
    """Over all positions of several tasks; no point at heads without positions."""
    hits, total = (np.sum([getattr(part, name) for part in parts], axis=0) for name in ("hits", "total"))
    shares = [hit / of if of else None for hit, of in zip(hits[:, -1 if whole else 0].tolist(), total.tolist())]
    heads = [*range(parts[0].first, parts[0].first + len(shares))]
    return Curve(name=name, x=heads, y=shares, series=series, dash="dash" if whole else "solid")


def _oracle(found: EfficiencyTable, seed: int) -> Plot:
    figures = Figures.of(found.result, seed=seed)
    names = {(facts["k"], facts["heads"]): name for name, facts in found.rows.items()}
    widths, heads = (sorted({pair[place] for pair in names}) for place in (0, 1))

    def curves(task: str | None) -> list[Curve]:
        values = {f"{n} heads": [figures.efficiency(names[k, n], task) for k in widths] for n in heads}
        return plots.ordered(values, widths)

    return Plot(
        title="Oracle block efficiency against candidates per head",
        x="candidates per head, k",
        y="tokens per target pass",
        views=plots.views(found.tasks, curves),
        xaxis=plots.logarithmic(),
    )


def _repetition(figures: Figures) -> Table:
    """Of the base draft and of the rescored one, the best path of the lattice with the language model."""
    rows = []
    for task in figures.tasks:
        repeated = (task["repetition"][key]["consecutive"] for key in ("base", "rescored"))
        duel = task["rescored_against_base"]
        shares = (duel[a] / duel[b] if duel[b] else None for a, b in (("repairs", "wins"), ("regressions", "losses")))
        rows.append((task["task"], *repeated, *(duel[key] for key in ("wins", "ties", "losses")), *shares))
    return Table(
        "Repetition, and steps at which the rescored draft wins, ties or loses",
        ("task", "repeated, base", "rescored", "wins", "ties", "losses", "repairs, of wins", "regressions, of losses"),
        rows,
        ".1%",
    )


def models_section(measured: Measured) -> Section | None:
    options, neural = measured.options, measured.neural
    prose: list[str] = []
    found: list[Plot] = []
    if measured.orders:
        prose.append(
            "The best path and the p best paths of the lattice with the first language model truncated to lower "
            "orders, and with each other model alone, at the same weight. In the paper, 2-grams do nearly as well."
        )
        found.append(_compared(measured.orders, options.seed))
    if neural:
        prose.append(_how_neural(neural, measured))
    if not prose:
        return None
    return Section(
        key="models",
        title="Language models",
        prose=prose,
        plots=found,
    )


def _compared(found: EfficiencyTable, seed: int) -> Plot:
    figures = Figures.of(found.result, seed=seed)
    names = {(facts["model"], facts["p"]): name for name, facts in found.rows.items() if facts["model"]}
    models, budgets = ([*dict.fromkeys(pair[place] for pair in names)] for place in (0, 1))

    def curves(task: str | None) -> list[Curve]:
        values = {
            "1 path" if p == 1 else f"{p} paths": [figures.efficiency(names[model, p], task) for model in models]
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
    return (
        f"The lattice is also rescored slot by slot with {neural.name} at weight {neural.alpha:g}, which is not tuned"
        f"{f', and by a beam of {neural.paths} paths' if neural.paths > 1 else ''}. On {neural.machine}, with all "
        f"sequences of a block as a batch, a lattice took {times}, reading the text included."
    )
