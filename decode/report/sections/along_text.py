"""Tokens per pass by the length of the text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.names import split
from rescore.decode.replay.analyses.along_text import AlongText
from rescore.decode.report import families, numbers, plots
from rescore.decode.report.content import Plot, PlotView, Section, Table

LEAST_PASSES = 30  # smaller bins are not shown


def section(found: Sequence[AlongText]) -> Section:
    return Section(
        key="along-text",
        title="Along the text",
        prose=(
            "Tokens per pass against the length of the text so far: a longer running text offers more to copy from. "
            "Both plots show the same passes. In the second, tasks with long prompts lie further to the right, so "
            f"compare within one task. Bins of fewer than {LEAST_PASSES} passes are left out.",
        ),
        parts=(_plot(found, "generated"), _plot(found, "read"), _table(found)),
    )


def _plot(found: Sequence[AlongText], measure: str) -> Plot:
    title = {"generated": "tokens generated before the pass", "read": "tokens read before the pass, prompt included"}
    tasks = list(dict.fromkeys(one.task for one in found))
    views = [PlotView(name="all tasks", traces=_curves(found, measure))]
    views += [
        PlotView(name=task, traces=_curves([one for one in found if one.task == task], measure)) for task in tasks
    ] * (len(tasks) > 1)
    ticks = [float(point) for view in views for trace in view.traces for point in trace["x"]]
    return Plot(
        title=f"Tokens per pass by {title[measure]}",
        alt=f"Curves of tokens per pass over {title[measure]}, one per drafter.",
        views=views,
        layout=plots.axes(f"{title[measure]}, from", "tokens per target pass", **plots.powers(ticks)),
    )


def _curves(found: Sequence[AlongText], measure: str) -> list[dict]:
    traces = []
    for name, (passes, tokens) in _sums(found, measure).items():
        bins = np.flatnonzero(passes >= LEAST_PASSES)
        family = families.family_of(name)
        traces.append(
            plots.curve(
                name,
                [float(2**place) for place in bins.tolist()],
                np.round(tokens[bins] / passes[bins], 4).tolist(),
                series=family.key,
                dash=family.dash if split(name)[1] != 64 else "dashdot",
                texts=[f"{name}, {count:,} passes" for count in passes[bins].tolist()],
            )
        )
    return traces


def _table(found: Sequence[AlongText]) -> Table:
    sums = _sums(found, "generated")
    shown = np.flatnonzero(np.any([passes >= LEAST_PASSES for passes, _ in sums.values()], axis=0)).tolist()
    rows = [
        (
            numbers.text(f"{2**place}–{2 ** (place + 1) - 1}" if place else "1"),
            *(
                numbers.decimal(tokens[place] / passes[place] if passes[place] >= LEAST_PASSES else None)
                for passes, tokens in sums.values()
            ),
        )
        for place in shown
    ]
    return Table(
        title="Tokens per pass by tokens generated before the pass, all tasks together",
        headers=("tokens", *sums),
        rows=rows,
    )


def _sums(found: Sequence[AlongText], measure: str) -> dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Passes and tokens of each drafter by bin, summed over tasks."""
    return {
        name: (
            np.sum([getattr(one, measure) for one in found if one.drafter == name], axis=0),
            np.sum([getattr(one, f"{measure}_tokens") for one in found if one.drafter == name], axis=0),
        )
        for name in dict.fromkeys(one.drafter for one in found)
    }
