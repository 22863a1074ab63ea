"""Searches trees for the rows that a replay visits only, each with the largest budget that visits the row."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.trees import Trees

# Arguments: sequences [R], their rows [R], n; returns the trees of n nodes.
Search = Callable[[NDArray[np.int64], NDArray[np.int64], int], Trees]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Visit:
    """Rows [R] searched together, their trees, and the trees' worth for each budget that they cover.

    seconds: time since the previous visit
    """

    rows: NDArray[np.int64]
    trees: Trees
    worth: Mapping[str, Worth]
    seconds: float


def visits(block: DumpBlock, truth: NDArray[np.int32], budgets: Mapping[str, int], search: Search) -> Iterator[Visit]:
    """Yields every row that some budget's replay visits, with the tree of the largest budget that visits it.

    Rows of a sequence come in order; rows that need trees of one size are searched together. truth: [n, T].
    """
    ends = block.offsets[1:] - 1  # after the last token nothing is left to draft
    due = {name: block.offsets[:-1].copy() for name in budgets}  # each sequence's next row to visit
    began = time.perf_counter()
    while True:
        first = np.min(list(due.values()), axis=0)
        going = first < ends
        if not going.any():
            return
        sizes = np.max([np.where(due[name] == first, n, 0) for name, n in budgets.items()], axis=0)
        n = int(np.bincount(sizes[going]).argmax())  # the size that most sequences need
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
    """Returns each budget's worth at the rows that its replay visits; other rows may hold 0."""
    found = {name: np.zeros((2, block.rows), np.int32) for name in budgets}
    searched: dict[int, NDArray[np.float64]] = {}  # rows and seconds by size
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
    """Extrapolates the search time to `rows` rows; searched: rows and seconds measured."""
    return None if searched is None else rows * float(searched[1] / searched[0])
