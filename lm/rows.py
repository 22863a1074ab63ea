"""Builds sorted tables from n-grams given as rows of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import Grams, pack, spell


class BadRow(ValueError):
    """An n-gram that fits no model: its order, its row in the caller's numbering, and the reason."""

    def __init__(self, order: int, row: int, tokens: list[int], why: str) -> None:
        super().__init__(f"{order}-gram {tokens} {why}")
        self.order, self.row, self.why = order, row, why


Rows = list[NDArray[np.uint32]]
Values = list[NDArray[np.float64]]


def close_suffixes(
    rows: Sequence[NDArray[np.uint32]], cost: Sequence[NDArray[np.float64]], backoff: Sequence[NDArray[np.float64]]
) -> tuple[Rows, Values, Values]:
    """Adds h'w for every hw that lacks it, with cost NaN and backoff cost 0."""
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


def with_backoff(rows: Sequence[NDArray[np.uint32]], backoff: Sequence[NDArray[np.float64]]) -> list[NDArray[np.bool_]]:
    """Which n-grams of orders 1..N-1 are contexts because they, or longer ones that end in them, have backoff costs."""
    marked = [own != 0 for own in backoff]
    for n in range(len(marked), 1, -1):
        shorter = rows[n - 2]
        rank = ranks(np.concatenate([shorter, rows[n - 1][marked[n - 1], 1:]]))
        marked[n - 2] = marked[n - 2] | np.isin(rank[: len(shorter)], rank[len(shorter) :])
    return marked


def index_rows(
    levels: Sequence[Grams], rows: NDArray[np.uint32], also: NDArray[np.bool_]
) -> tuple[Grams, NDArray[np.int64], NDArray[np.int64]]:
    """Indexes n-grams of the next order after `levels`.

    Returns them in context order, the row of each, and for each context its index among the n-grams of the last level.

    also  bool [n], n-grams of the last level that are contexts even if no row needs them (and so are their suffixes)
    """
    below, order = levels[-1], len(levels) + 1
    context = _find_grams(levels, rows[:, :-1])
    _refuse(context < 0, rows, "has no context: without its last token it is not an n-gram of the model")
    grams = np.flatnonzero((np.bincount(context, minlength=len(below)) > 0) | also)
    spelled = spell(levels, order - 1)[grams]
    grams = grams[np.lexsort(tuple(spelled[:, place] for place in range(order - 1)))]  # lexsort: last key first
    spelled = spell(levels, order - 1)[grams]
    number = np.full(len(below), -1, np.int64)
    number[grams] = np.arange(len(grams))
    parent = _find_contexts(levels, spelled[:, 1:])
    assert not (parent < 0).any(), "close_suffixes and with_backoff come first"
    keys = pack(number[context], rows[:, -1])
    by_key = np.argsort(keys, kind="stable")
    twice = np.zeros(len(keys), bool)
    twice[by_key[1:]] = keys[by_key[1:]] == keys[by_key[:-1]]
    _refuse(twice, rows, "occurs twice")
    begin = np.zeros(len(grams) + 1, np.uint64)
    np.cumsum(np.bincount(number[context], minlength=len(grams)), out=begin[1:])
    level = Grams(
        context_token=spelled[:, 0].copy(), context_parent=parent.astype(np.uint32), begin=begin, token=rows[by_key, -1]
    )
    return level, by_key, grams


def _find_grams(levels: Sequence[Grams], rows: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The index of each row among the n-grams of the last level, -1 if it is not there."""
    return levels[-1].find(_find_contexts(levels, rows[:, :-1]), rows[:, -1])


def _find_contexts(levels: Sequence[Grams], rows: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The index of each row [m, length] among the contexts of order length + 1, -1 if it is not there."""
    found = np.zeros(len(rows), np.int64)
    for length in range(1, rows.shape[1] + 1):
        found = levels[length].find_context(found, rows[:, -length])
    return found


def ranks(rows: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """The lexicographic rank of each row, equal for equal rows: uint64 [n]."""
    rank = rows[:, 0].astype(np.uint64)
    for place in range(1, rows.shape[1]):
        _, inverse = np.unique(pack(rank, rows[:, place]), return_inverse=True)
        rank = inverse.reshape(-1).astype(np.uint64)
    return rank


def _refuse(wrong: NDArray[np.bool_], rows: NDArray[np.uint32], why: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise BadRow(rows.shape[1], row, rows[row].tolist(), why)
