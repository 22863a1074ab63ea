"""Tables of n-grams that are given as rows of tokens, in any order: what formats and merging read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.model.grams import NOTHING, Grams, check_vocabulary, pack, spell
from rescore.lm.model.tables import Tables

Rows = list[NDArray[np.uint32]]
Values = list[NDArray[np.float64]]


class BadRow(ValueError):
    """An n-gram that fits no model: its order, its row in the caller's numbering, and the reason."""

    def __init__(self, order: int, row: int, tokens: list[int], why: str) -> None:
        super().__init__(f"{order}-gram {tokens} {why}")
        self.order, self.row, self.why = order, row, why


def tables_of_rows(
    rows: Sequence[NDArray[Any]],
    cost: Sequence[NDArray[np.float64]],
    backoff: Sequence[NDArray[np.float64]],
    *,
    vocab_size: int,
    unseen_cost: float | None = None,
    bos: int | None = None,
    eos: int | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Tables:
    """Builds a model from n-grams given as rows of tokens, in any order.

    rows     tokens of each order n, integers [rows, n], ids below V
    cost     float64 [rows] for each order; backoff likewise, for orders 1..N-1
    unseen_cost  cost of ids without a unigram; None makes a missing unigram an error

    A missing suffix h'w of an n-gram hw is added with its backed-off probability, which changes no score (KenLM
    does the same). An n-gram whose context h is missing, or that occurs twice, is an error.
    """
    check_vocabulary(vocab_size, len(rows))
    rows = [_ids(own, order, vocab_size) for order, own in enumerate(rows, 1)]
    closed, costs, backoffs = close_suffixes(rows, cost, backoff)
    marked = with_backoff(closed, backoffs)
    levels = [Grams.unigrams(vocab_size)]
    done_cost = [_unigram_costs(closed[0][:, 0], costs[0], vocab_size, unseen_cost)]
    paid, also = np.zeros(vocab_size), np.zeros(vocab_size, bool)  # of the n-grams of the last level, as contexts
    if backoffs:
        paid[closed[0][:, 0]], also[closed[0][:, 0]] = backoffs[0], marked[0]
    context_cost: list[NDArray[np.float64]] = []
    for n in range(2, len(rows) + 1):
        level, order, as_gram = index_rows(levels, closed[n - 1], also)
        context_cost.append(paid[as_gram])
        own = costs[n - 1][order]
        blank = np.isnan(own)
        if blank.any():
            suffix = _core.suffixes(level.native, levels[-1].native, 0, level.contexts)
            own[blank] = (context_cost[-1][level.context()] + done_cost[-1][suffix])[blank]
        levels.append(level)
        done_cost.append(own)
        if n < len(rows):
            paid, also = backoffs[n - 1][order], marked[n - 1][order]
    return Tables(
        levels=tuple(levels),
        cost=tuple(done_cost),
        backoff=tuple(context_cost),
        bos=bos,
        eos=eos,
        metadata=dict(metadata or {}),
    )


def tables_of_ngrams(
    ngrams: Mapping[tuple[int, ...], tuple[float, float]],
    *,
    vocab_size: int,
    unseen_cost: float | None = None,
) -> Tables:
    """Builds a small model from {tokens: (probability, backoff weight)}; the weight is 1 if it is not a context."""
    order = max(map(len, ngrams), default=0)
    rows, cost, backoff = [], [], []
    for n in range(1, order + 1):
        own = [(tokens, p, b) for tokens, (p, b) in ngrams.items() if len(tokens) == n]
        rows.append(np.array([tokens for tokens, _, _ in own] or NOTHING).reshape(len(own), n))
        cost.append(-np.log(np.array([p for _, p, _ in own], np.float64)))
        backoff.append(-np.log(np.array([b for _, _, b in own], np.float64)))
    return tables_of_rows(rows, cost, backoff[:-1], vocab_size=vocab_size, unseen_cost=unseen_cost)


def _ids(rows: NDArray[Any], order: int, vocab_size: int) -> NDArray[np.uint32]:
    if rows.dtype.kind not in "iu":
        raise TypeError(f"rows of order {order}: expected integers, got {rows.dtype}")
    for value in (int(rows.min()), int(rows.max())) if rows.size else ():
        if not 0 <= value < vocab_size:
            raise ValueError(f"rows of order {order}: expected ids in 0..{vocab_size - 1}, got {value}")
    return rows.astype(np.uint32, copy=False)


def _unigram_costs(
    tokens: NDArray[np.uint32], cost: NDArray[np.float64], vocab_size: int, unseen_cost: float | None
) -> NDArray[np.float64]:
    again = np.bincount(tokens, minlength=vocab_size) > 1
    if again.any():
        token = int(again.argmax())
        raise BadRow(1, int(np.flatnonzero(tokens == token)[1]), [token], "occurs twice")
    unigram = np.full(vocab_size, np.nan)
    unigram[tokens] = cost
    missing = np.isnan(unigram)
    if missing.any():
        if unseen_cost is None:
            raise ValueError(
                f"unigrams: expected all {vocab_size} ids, got none for id {int(missing.argmax())}; "
                "give unseen_cost for such ids"
            )
        unigram[missing] = unseen_cost
    return unigram


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
    context = below.find(_find_contexts(levels, rows[:, :-2]), rows[:, -2])  # as n-grams of the last level
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
