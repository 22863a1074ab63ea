"""Reliability of q: how often drafted nodes of probability q are accepted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.replay import DrafterReplay
from rescore.lattice.dump import Dump
from rescore.lattice.split import SplitPart, chosen_blocks
from rescore.lattice.tree import Trees, accepted_by_size

EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, *(place / 10 for place in range(1, 11)))  # bin edges of q


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reliability:
    """Reliability counts of one task over a replay; nodes past the end of a text are left out.

    passes    passes that verify a draft
    nodes     int64 [bins], drafted nodes with EDGES[b] <= q < EDGES[b + 1], q the probability of the prefix
    expected  float64 [bins], expected number of accepted nodes, the sum of their q
    accepted  int64 [bins], accepted nodes
    """

    task: str
    passes: int
    nodes: NDArray[np.int64]
    expected: NDArray[np.float64]
    accepted: NDArray[np.int64]


def reliability(
    dump: Dump,
    drafter: DrafterReplay,
    *,
    tasks: Collection[str] | None = None,
    split: SplitPart | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> list[Reliability]:
    """Returns the counts of each task, for a drafter of trees with one budget."""
    bins = len(EDGES) - 1
    found: dict[str, NDArray[np.float64]] = {}
    for block in chosen_blocks(dump, tasks, split, advance):
        counts = found.setdefault(block.task, np.zeros((4, bins)))
        for visit in drafter.visits(block):
            trees = visit.proposed
            assert isinstance(trees, Trees)
            own = block.truth(visit.rows, slots=trees.tokens.shape[1])
            true = np.diff(accepted_by_size(trees.tokens, trees.parents, own), prepend=0, axis=1) > 0
            inside = (trees.depths <= (own >= 0).sum(axis=1)[:, None]) & (trees.tokens >= 0)
            q = np.exp(trees.logq[inside].astype(np.float64))
            place = np.clip(np.searchsorted(EDGES, q, side="right") - 1, 0, bins - 1)
            counts[0, 0] += inside.any(axis=1).sum()
            for row, weights in enumerate((None, q, true[inside]), 1):
                counts[row] += np.bincount(place, weights=weights, minlength=bins)
    return [
        Reliability(
            task=task,
            passes=int(one[0, 0]),
            nodes=one[1].astype(np.int64),
            expected=one[2],
            accepted=one[3].astype(np.int64),
        )
        for task, one in found.items()
    ]
