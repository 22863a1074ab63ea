"""Acceptance of drafts by position."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rescore.decode.replay.analyses.acceptance import Acceptance
from rescore.decode.report import families, numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

DASHES = ("solid", "dot", "dashdot")  # drafters of one family


def section(found: Sequence[Acceptance]) -> Section:
    return Section(
        key="acceptance",
        title="Acceptance",
        prose=(
            "The share of a drafter's drafts that are accepted up to each position, over the passes of its own replay. "
            "If the curve falls steeply at first, the first slots matter most, and nodes at later ones are rarely "
            "reached.",
        ),
        parts=(_plot(found), _table(found)),
    )


def _plot(found: Sequence[Acceptance]) -> Plot:
    tasks = list(dict.fromkeys(one.task for one in found))
    views = [PlotView(name="all tasks", traces=_curves(found))] + [
        PlotView(name=task, traces=_curves([one for one in found if one.task == task])) for task in tasks
    ] * (len(tasks) > 1)
    return Plot(
        title="Drafts accepted up to a position",
        alt="Falling curves of the share of drafts accepted up to each position, one per drafter.",
        views=views,
        layout=plots.axes(
            "position in the draft", "share of drafts", y_tickformat=".0%", x_dtick=1, y_rangemode="tozero"
        ),
    )


def _curves(found: Sequence[Acceptance]) -> list[dict]:
    traces, seen = [], dict.fromkeys((families.family_of(one.drafter).key for one in found), 0)
    for name, shares in _shares(found).items():
        family = families.family_of(name)
        dash = "dash" if family.key == "oracle" else DASHES[seen[family.key] % len(DASHES)]
        seen[family.key] += 1
        positions = [float(place) for place in range(1, len(shares) + 1)]
        traces.append(plots.curve(name, positions, shares, series=family.key, dash=dash))
    return traces


def _table(found: Sequence[Acceptance]) -> Table:
    shares = _shares(found)
    slots = len(next(iter(shares.values())))
    rows = [(numbers.text(name), *(numbers.percent(value, 1) for value in values)) for name, values in shares.items()]
    return Table(
        title="Drafts accepted up to a position, all tasks together",
        headers=("drafter", *(str(place) for place in range(1, slots + 1))),
        rows=rows,
    )


def _shares(found: Sequence[Acceptance]) -> dict[str, list[float | None]]:
    """The shares of every drafter, all tasks together."""
    out = {}
    for name in dict.fromkeys(one.drafter for one in found):
        own = [one for one in found if one.drafter == name]
        accepted, drafts = np.sum([one.accepted for one in own], axis=0), np.sum([one.drafts for one in own], axis=0)
        out[name] = [round(int(a) / int(b), 5) if b else None for a, b in zip(accepted, drafts)]
    return out
