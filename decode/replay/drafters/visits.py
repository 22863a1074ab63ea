"""Trees of the rows that a replay visits, and of no others: each search as large as what visits its row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.trees import Trees

# The trees of n nodes of rows [R] of the sequences [R].
Search = Callable[[NDArray[np.int64], NDArray[np.int64], int], Trees]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Visit:
    """Rows [R] that were searched together, their trees, and what those are worth to budgets that they serve.

    seconds: since the visit before
    """

    rows: NDArray[np.int64]
    trees: Trees
    worth: Mapping[str, Worth]
    seconds: float


def visits(block: DumpBlock, truth: NDArray[np.int32], budgets: Mapping[str, int], search: Search) -> Iterator[Visit]:
    """Every row that the replay of a budget visits, with the tree of the greatest budget that visits it.

    Of each sequence one row after the other; what waits for trees of one size is searched together. truth: [n, T].
    """
    ends = block.offsets[1:] - 1  # the last token leaves nothing to draft
    due = {name: block.offsets[:-1].copy() for name in budgets}  # of each sequence the row to visit next
    began = time.perf_counter()
    while True:
        first = np.min(list(due.values()), axis=0)
        going = first < ends
        if not going.any():
            return
        sizes = np.max([np.where(due[name] == first, n, 0) for name, n in budgets.items()], axis=0)
        n = int(np.bincount(sizes[going]).argmax())  # what most of them wait for
        sequences = np.flatnonzero(going & (sizes == n))
        rows = first[sequences]
        trees = search(sequences, rows, n)
        worth = worth_of_trees(trees, truth[rows], {name: size for name, size in budgets.items() if size <= n})
        for name, one in worth.items():
            here = due[name][sequences] == rows
            due[name][sequences[here]] = rows[here] + one.accepted[here] + 1
        now = time.perf_counter()
        yield Visit(rows=rows, trees=trees, worth=worth, seconds=now - began)
        began = time.perf_counter()


def worth_of_visits(
    block: DumpBlock, truth: NDArray[np.int32], budgets: Mapping[str, int], search: Search
) -> dict[str, Worth]:
    """Of the rows that a budget's own replay visits; others may hold 0."""
    found = {name: np.zeros((2, block.rows), np.int32) for name in budgets}
    searched: dict[int, NDArray[np.float64]] = {}  # of each size the rows and the time
    for visit in visits(block, truth, budgets, search):
        n = visit.trees.tokens.shape[1]
        searched[n] = searched.get(n, 0) + np.array([len(visit.rows), visit.seconds])
        for name, one in visit.worth.items():
            found[name][:, visit.rows] = one.accepted, one.verified
    return {
        name: Worth(
            accepted=found[name][0],
            verified=found[name][1],
            seconds=seconds_of(block.rows, next((searched[size] for size in sorted(searched) if size >= n), None)),
        )
        for name, n in budgets.items()
    }


def seconds_of(rows: int, searched: NDArray[np.float64] | None) -> float | None:
    """Of so many rows, by the rows and the time of those that were searched."""
    return None if searched is None else rows * float(searched[1] / searched[0])
