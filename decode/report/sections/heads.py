"""The heads' candidates: the rank of the true token, the oracle's bound, and repetition in drafts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rescore.decode.replay.analyses.efficiency import EfficiencyTable
from rescore.decode.replay.analyses.recall import Recall, TaskRecall
from rescore.decode.replay.figures import Figures
from rescore.decode.report import plots
from rescore.decode.report.content import Curve, Plot, Section, Table
from rescore.decode.report.measured import Measured

# The curves of recall: name, series, kind of recall, and whether among all candidates rather than the first.
RECALLS = (
    ("heads, all positions", "tree-base", "heads", False),
    ("on the true path, heads", "paths-base", "on_path", False),
    ("on the true path, rescored", "tree", "rescored", False),
    ("on the true path, in the lattice", "oracle", "on_path", True),
)


def section(measured: Measured) -> Section | None:
    if not measured.oracle:
        return None
    figures = measured.figures
    return Section(
        key="heads",
        title="The heads",
        prose=(
            "Recall@1 of a head is the share of positions at which its first candidate is the true token. Curves on "
            "the true path count only positions whose earlier true tokens are all in the lattice, as a draft must "
            "contain them to reach the slot. The gap between recall@1 before and after rescoring is the gain of the "
            "language model; the gap to the dashed line is the share in the lattice that is still misranked.",
            "The oracle drafts the longest prefix of the true text that the first k candidates of each head contain; "
            "k = 1 is the base draft. If its curves still rise at the right, more candidates would help; if those of "
            "few and of many heads coincide, the later heads add nothing.",
            "Heads do not see each other's choice, so drafts repeat tokens: the share of equal neighbours. The "
            "rescored draft wins a step if it is accepted further than the base draft. A win that removes a repetition "
            "is a repair; a loss that introduces one is a regression.",
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
    resampled = found.resampled(seed)
    names = {(facts["k"], facts["heads"]): name for name, facts in found.rows.items()}
    widths, heads = (sorted({pair[place] for pair in names}) for place in (0, 1))

    def curves(task: str | None) -> list[Curve]:
        values = {f"{n} heads": [resampled.efficiency(names[k, n], task) for k in widths] for n in heads}
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
