"""Reliability of q: how often drafted nodes of probability q are accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.lab.replay.table import Lines
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.tree import Trees, accepted_by_size

EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, *(place / 10 for place in range(1, 11)))  # bin edges of q
BINS = len(EDGES) - 1


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


class ReliabilityCounts:
    """Collects the reliability of a drafter's trees, which its replay keeps; `add` is the listener."""

    def __init__(self, name: str):
        self.name = name
        self._found: dict[str, NDArray[np.float64]] = {}

    def add(self, block: DumpBlock, lines: Mapping[str, Lines]) -> None:
        counts, own = self._found.setdefault(block.task, np.zeros((4, BINS))), lines[self.name]
        trees, made = own.drafts, own.made
        if not isinstance(trees, Trees):  # nothing was drafted
            return
        tokens, parents, depths, logq = (
            column[made] for column in (trees.tokens, trees.parents, trees.depths, trees.logq)
        )
        truth = block.truth(own.rows(block)[made], slots=tokens.shape[1])
        true = np.diff(accepted_by_size(tokens, parents, truth), prepend=0, axis=1) > 0
        inside = (depths <= (truth >= 0).sum(axis=1)[:, None]) & (tokens >= 0)
        q = np.exp(logq[inside].astype(np.float64))
        place = np.clip(np.searchsorted(EDGES, q, side="right") - 1, 0, BINS - 1)
        counts[0, 0] += inside.any(axis=1).sum()
        for row, weights in enumerate((None, q, true[inside]), 1):
            counts[row] += np.bincount(place, weights=weights, minlength=BINS)

    def result(self) -> list[Reliability]:
        """The counts of each task."""
        return [
            Reliability(
                task=task,
                passes=int(counts[0, 0]),
                nodes=counts[1].astype(np.int64),
                expected=counts[2],
                accepted=counts[3].astype(np.int64),
            )
            for task, counts in self._found.items()
        ]
