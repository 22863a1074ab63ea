"""Paired differences between drafters: the gain of the language model over heads, and of heads over the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rescore.decode.replay.figures import Figures
from rescore.decode.report import numbers
from rescore.decode.report.content import Cell, Section, Table

SIGNIFICANT = 0.05


def section(figures: Figures, keep: Callable[[str, str], bool] = lambda drafter, against: True) -> Section:
    """keep: selects the pairs to show."""
    return Section(
        key="differences",
        title="Differences",
        prose=(
            "The block efficiency of a drafter minus that of another at the same budget, on the same sequences: mean "
            "over tasks, its interval, and the two-sided p-value. The last columns count the tasks on which the first "
            "is better or worse with p below 0.05. P-values are not corrected for multiple comparisons.",
        ),
        parts=(table(figures, keep),),
    )


def table(figures: Figures, keep: Callable[[str, str], bool]) -> Table:
    kept = [
        (mean, [task["differences"][place] for task in figures.tasks])
        for place, mean in enumerate(figures.overall["differences"])
        if keep(mean["drafter"], mean["against"])
    ]
    sure = sum(mean["p_value"] is not None and mean["p_value"] < SIGNIFICANT for mean, _ in kept)
    return Table(
        title="Paired differences of block efficiency",
        headers=("drafter", "against", "difference", "p", "better", "worse", "tasks"),
        rows=[row(mean, tasks) for mean, tasks in kept],
        gist=f"{sure} of {len(kept)} with p below {SIGNIFICANT}",
    )


def row(mean: dict[str, Any], tasks: list[dict[str, Any]]) -> tuple[Cell, ...]:
    """The row of one pair: its mean over tasks, and the number of tasks it is better or worse on."""
    sure = [one["value"] for one in tasks if one["p_value"] is not None and one["p_value"] < SIGNIFICANT]
    interval = None if mean["low"] is None else (mean["low"], mean["high"])
    return (
        numbers.text(mean["drafter"]),
        numbers.text(mean["against"]),
        numbers.decimal(mean["value"], 3, interval),
        numbers.p_value(mean["p_value"]),
        numbers.count(sum(value > 0 for value in sure)),
        numbers.count(sum(value < 0 for value in sure)),
        numbers.count(len(tasks)),
    )
