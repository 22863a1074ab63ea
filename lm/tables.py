"""A backoff model as tables: the output of estimation and pruning, from which files are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.short_repr import short_repr
from rescore.lm.columns import Columns, Memory
from rescore.lm.grams import NO_CONTEXT, NOTHING, Grams, check_vocabulary, spell
from rescore.lm.rows import BadRow, close_suffixes, index_rows, with_backoff

# The cost of an impossible event, such as <s>; ARPA files write log10 -99 for it.
NEVER = 99.0 * float(np.log(10.0))
MAX_COST = 1e6 * float(np.log(10.0))  # of an event or of backing off: sums along a text stay finite in float32
ROUNDING = 1e-5  # the cost of an event may be this much below 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Histories:
    """The counts of a model's contexts.

    count   N - 1 arrays uint64 [C] for the contexts of orders 2..N
    tokens  number of tokens in all
    """

    count: tuple[NDArray[np.uint64], ...]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """A backoff model of order N over ids 0..V-1, in float64.

    levels   n-grams of orders 1..N (`grams.py`); order 1 holds every id
    cost     N arrays float64 [n], -ln p(w | h)
    backoff  N - 1 arrays float64 [C] for the contexts of orders 2..N, -ln bow
    bos      id of a begin-of-sentence word, a context that is never an event, or None
    eos      id of an end-of-sentence word, or None
    histories  counts of contexts, if the chain rule does not give their probabilities (Kneser-Ney); or None
    """

    levels: tuple[Grams, ...]
    cost: tuple[NDArray[np.float64], ...]
    backoff: tuple[NDArray[np.float64], ...]
    bos: int | None = None
    eos: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    histories: Histories | None = None

    __repr__ = short_repr

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def vocab_size(self) -> int:
        return len(self.levels[0])

    @property
    def ngrams(self) -> tuple[int, ...]:
        """Number of n-grams of each order."""
        return tuple(len(level) for level in self.levels)

    @classmethod
    def from_rows(
        cls,
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
        return cls(
            levels=tuple(levels),
            cost=tuple(done_cost),
            backoff=tuple(context_cost),
            bos=bos,
            eos=eos,
            metadata=dict(metadata or {}),
        )

    @classmethod
    def from_ngrams(
        cls,
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
        return cls.from_rows(rows, cost, backoff[:-1], vocab_size=vocab_size, unseen_cost=unseen_cost)

    def spell(self, order: int) -> NDArray[np.uint32]:
        """The tokens of the n-grams of one order, uint32 [n, order], in context order."""
        return spell(self.levels, order)

    def gram_backoffs(self) -> list[NDArray[np.float64]]:
        """The backoff costs of the n-grams of orders 1..N-1, float64 [n] each; NaN for those that are not contexts."""
        found = []
        for as_context, backoff in zip(links(self.levels), self.backoff):
            is_one = as_context != NO_CONTEXT
            cost = np.full(len(as_context), np.nan)
            cost[is_one] = backoff[as_context[is_one]]
            found.append(cost)
        return found


def links(levels: Sequence[Grams], columns: Columns | None = None) -> list[NDArray[np.uint32]]:
    """The index of each n-gram of orders 1..N-1 among the next order's contexts, or NO_CONTEXT: uint32 [n] each."""
    columns = columns or Memory()
    found: list[NDArray[np.uint32]] = []
    first = NOTHING
    for n, (level, above) in enumerate(zip(levels, levels[1:]), 1):
        below = levels[max(n - 2, 0)]
        first = _core.first_by_last_token(above.native, first, len(levels[0]))
        below_link = found[-1] if found else NOTHING
        found += columns.write({f"{n}.link": np.uint32}, _linked(level, below, below_link, above, first, columns))
    return found


def _linked(
    level: Grams,
    below: Grams,
    below_link: NDArray[np.uint32],
    above: Grams,
    first: NDArray[np.uint32],
    columns: Columns,
):
    native, native_below, native_above, cursor = level.native, below.native, above.native, first[:-1].copy()
    for a, b in level.ranges():
        yield (_core.link(native, native_below, below_link, native_above, first, cursor, a, b),)
        columns.release()


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
