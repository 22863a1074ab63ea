"""Why draft tokens are lost."""

from __future__ import annotations

from collections.abc import Sequence

from rescore.decode.replay.analyses.lost_tokens import CAUSES, LostTokens
from rescore.decode.report import numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

TITLES = {
    "absent": "not in the lattice",
    "lm": "misranked by the LM",
    "budget": "lost to the budget",
    "heads": "ranked too low",
}
SERIES = {"absent": "other", "lm": "paths-base", "budget": "lm-alone", "heads": "tree-base"}


def section(found: Sequence[LostTokens], *, budget: int, larger: int) -> Section:
    """budget: nodes of the analysed tree; larger: nodes of the tree it is compared with."""
    return Section(
        key="lost",
        title="Lost tokens",
        prose=(
            f"In every pass of the tree of {budget} nodes, the first rejected position has one cause, the first of "
            "these that holds: the true token is not among the candidates; the tree of the heads alone has it, so the "
            f"language model misranked it; a tree of {larger} nodes has it, so it is lost to the budget; otherwise "
            "heads and language model together rank it too low. The shares are of all tokens lost from that position "
            "on, and sum to 1.",
        ),
        parts=(_plot(found), _table(found)),
    )


def _plot(found: Sequence[LostTokens]) -> Plot:
    names = [one.task for one in found]
    shares = [one.to_json()["tokens_share"] or dict.fromkeys(CAUSES) for one in found]
    traces = [
        plots.bars(TITLES[cause], names, [share[cause] for share in shares], series=SERIES[cause]) for cause in CAUSES
    ]
    return Plot(
        title="Lost tokens by cause",
        alt="Stacked bars of the share of lost tokens by cause, one per task.",
        views=[PlotView(name="all tasks", traces=traces)],
        layout=plots.axes("", "share of lost tokens", y_tickformat=".0%", barmode="stack"),
    )


def _table(found: Sequence[LostTokens]) -> Table:
    rows = []
    for one in found:
        facts = one.to_json()
        shares = facts["tokens_share"] or {}
        rows.append(
            (
                numbers.text(one.task),
                numbers.count(one.steps),
                numbers.percent(one.whole / one.steps if one.steps else None, 1),
                numbers.count(facts["lost_tokens"]),
                *(numbers.percent(shares.get(cause), 1) for cause in CAUSES),
            )
        )
    headers = ("task", "steps", "steps without loss", "lost tokens", *(TITLES[cause] for cause in CAUSES))
    return Table(title="Lost tokens by cause", headers=headers, rows=rows, gist=_most(found))


def _most(found: Sequence[LostTokens]) -> str:
    """The cause of most lost tokens, mean over tasks."""
    shares = [share for one in found if (share := one.to_json()["tokens_share"])]
    means = {cause: sum(share[cause] for share in shares) / len(shares) for cause in CAUSES if shares}
    worst = max(means, key=means.__getitem__, default=None)
    return "nothing is lost" if worst is None else f"most: {TITLES[worst]}, {means[worst]:.0%}"
