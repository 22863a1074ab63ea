"""Times of drafting. Each budget is timed separately, since a search for 128 nodes says nothing about one for 8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rescore.decode.draft.names import PARALLEL, split
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart

ROWS = 1024  # lattices searched together


def drafting_seconds(dump: Dump, drafters: Sequence[Replay], part: SplitPart, tasks: Sequence[str]) -> dict[str, float]:
    """Wall-clock seconds per lattice, by drafter, on the first lattices of the part.

    Each budget is warmed up on the first sequence. Drafters without `budgets`, without a measured search time or
    without a predicted cost are left out.
    """
    block = next(block for task in tasks for block in part.blocks(dump, task))
    sequences = max(1, int((block.offsets <= ROWS).sum()) - 1)
    block = block.part(0, sequences)
    found = {}
    for drafter in drafters:
        if not isinstance(drafter, DrafterReplay):
            continue
        for name, budget in drafter.budgets.items():
            if not is_costed(name):
                continue
            alone = replace(drafter, budgets={name: budget})
            alone.outcomes(block.part(0, 1))
            outcome = alone.outcomes(block)[name]
            if outcome.seconds is not None and len(outcome.evaluated):
                found[name] = float(outcome.seconds[outcome.evaluated].mean())
    return found


def is_costed(name: str) -> bool:
    """Whether the report predicts a drafter's cost; of p paths, only for one p."""
    stem, budget = split(name)
    return budget is None or stem not in PARALLEL
