"""What drafting takes: every budget searched by itself, since a search of 128 nodes is no measure of one of 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rescore.decode.replay.drafters.names import PARALLEL, split
from rescore.decode.replay.split import SplitPart
from rescore.decode.replay.worth import ReplayDrafter
from rescore.lattice.dump import Dump

ROWS = 1024  # lattices searched together


def drafting_seconds(
    dump: Dump, drafters: Sequence[ReplayDrafter], part: SplitPart, tasks: Sequence[str]
) -> dict[str, float]:
    """Wall time for each lattice of every drafter that is costed and tells its search's, on the first lattices of the
    part.

    Each budget is searched on the first sequence before, which does not count. Drafters without `budgets` are left out.
    """
    block = next(block for task in tasks for block in part.blocks(dump, task))
    sequences = max(1, int((block.offsets <= ROWS).sum()) - 1)
    block = block.part(0, sequences)
    found = {}
    for drafter in drafters:
        budgets: Mapping[str, Any] = getattr(drafter, "budgets", {})
        for name, budget in budgets.items():
            if not is_costed(name):
                continue
            alone: Any = replace(drafter, budgets={name: budget})  # type: ignore[type-var]
            alone.worth(block.part(0, 1))
            if (seconds := alone.worth(block)[name].seconds) is not None:
                found[name] = seconds / block.rows
    return found


def is_costed(name: str) -> bool:
    """Whether the cost of a drafter is told: of p paths for one p alone."""
    stem, budget = split(name)
    return budget is None or stem not in PARALLEL
