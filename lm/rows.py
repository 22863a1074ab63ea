"""N-grams spelled out, one row of tokens each, made into sorted tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import Grams, pack


class BadRow(ValueError):
    """An n-gram that fits no model: its order, its row, counted as the caller gave them, and why."""

    def __init__(self, order: int, row: int, tokens: list[int], why: str) -> None:
        super().__init__(f"{order}-gram {tokens} {why}")
        self.order, self.row, self.why = order, row, why


Rows = list[NDArray[np.uint32]]
Values = list[NDArray[np.float64]]


def close_suffixes(
    rows: Sequence[NDArray[np.uint32]], cost: Sequence[NDArray[np.float64]], backoff: Sequence[NDArray[np.float64]]
) -> tuple[Rows, Values, Values]:
    """The same rows, and h'w for every hw that lacks it, with cost NaN and backoff cost 0."""
    closed, costs, backoffs = list(rows), [np.array(c, np.float64) for c in cost], [np.array(b) for b in backoff]
    for n in range(len(closed), 2, -1):
        shorter = closed[n - 2]
        rank = ranks(np.concatenate([shorter, closed[n - 1][:, 1:]]))
        wanted, first = np.unique(rank[len(shorter) :], return_index=True)
        lacking = closed[n - 1][first[~np.isin(wanted, rank[: len(shorter)])], 1:]
        closed[n - 2] = np.concatenate([shorter, lacking])
        costs[n - 2] = np.concatenate([costs[n - 2], np.full(len(lacking), np.nan)])
        backoffs[n - 2] = np.concatenate([backoffs[n - 2], np.zeros(len(lacking))])
    return closed, costs, backoffs


def index_rows(levels: Sequence[Grams], rows: NDArray[np.uint32]) -> tuple[Grams, NDArray[np.int64]]:
    """The n-grams of the next order after `levels`, sorted, and the row that each comes from."""
    below = levels[-1]
    prefix = rows[:, 0].astype(np.int64)
    for place, level in enumerate(levels[1:], 1):
        prefix = level.find(prefix, rows[:, place])
    _refuse(prefix < 0, rows, "has no context: without its last token it is no n-gram of the model")
    keys = pack(prefix, rows[:, -1])
    order = np.argsort(keys, kind="stable")
    twice = np.zeros(len(keys), bool)
    twice[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    _refuse(twice, rows, "comes twice")
    prefix, token = prefix[order], rows[order, -1]
    suffix = token.astype(np.int64) if len(levels) == 1 else below.find(below.suffix[prefix], token)
    assert not (suffix < 0).any(), "close_suffixes comes first"
    return Grams(prefix=prefix.astype(np.uint32), suffix=suffix.astype(np.uint32), token=token), order


def ranks(rows: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Numbers that order the rows lexicographically, equal for equal rows: uint64 [n]."""
    rank = rows[:, 0].astype(np.uint64)
    for place in range(1, rows.shape[1]):
        _, inverse = np.unique(pack(rank, rows[:, place]), return_inverse=True)
        rank = inverse.reshape(-1).astype(np.uint64)
    return rank


def _refuse(wrong: NDArray[np.bool_], rows: NDArray[np.uint32], why: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise BadRow(rows.shape[1], row, rows[row].tolist(), why)
