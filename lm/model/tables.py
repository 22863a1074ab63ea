"""A backoff model as tables: the output of estimation and pruning, from which files are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.short_repr import short_repr
from rescore.lm.model.columns import Columns
from rescore.lm.model.grams import NO_CONTEXT, NOTHING, Grams, spell

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

    def spell(self, order: int) -> NDArray[np.uint32]:
        """The tokens of the n-grams of one order, uint32 [n, order], in context order."""
        return spell(self.levels, order)

    def sums(self) -> list[NDArray[np.float64]]:
        """The sums of the probabilities of all ids: after the empty context [1], then after those of each order [C]."""
        total = [np.array([np.exp(-self.cost[0]).sum()])]
        for level, below, below_cost, cost, backoff in zip(
            self.levels[1:], self.levels, self.cost, self.cost[1:], self.backoff
        ):
            args = (level.native, below.native, below_cost, cost, backoff, total[-1])
            total.append(_core.sums(*args, 0, level.contexts))
        return total

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
    columns = columns or Columns()
    found: list[NDArray[np.uint32]] = []
    first = NOTHING
    for n, (level, above) in enumerate(zip(levels, levels[1:]), 1):
        below = levels[max(n - 2, 0)]
        first = _core.first_by_last_token(above.native, first, len(levels[0]))
        below_link = found[-1] if found else NOTHING
        cursor = first[:-1].copy()

        def parts(level=level, given=(below.native, below_link, above.native, first, cursor)):
            native = level.native
            for a, b in level.ranges():
                yield (_core.link(native, *given, a, b),)
                columns.release()

        found += columns.write({f"{n}.link": np.uint32}, parts())
    return found
