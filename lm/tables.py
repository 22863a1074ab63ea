"""A backoff model as tables: what estimation makes, pruning shortens and files are written from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import Grams, check_vocabulary, select, spell
from rescore.lm.rows import BadRow, close_suffixes, index_rows

# The cost of what never happens, such as <s> as an event: the -99 that ARPA files write for it.
NEVER = 99.0 * float(np.log(10.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """A backoff model of order N over ids 0..V-1, in float64.

    levels   n-grams of orders 1..N (`grams.py`); order 1 holds every id
    cost     N arrays float64 [n], -ln p(w | h)
    backoff  N - 1 arrays float64 [n] for orders 1..N-1, -ln bow of the n-gram as a context, 0 where it is none
    bos      id of a begin-of-sentence word, a context that is never an event, or None
    eos      id of an end-of-sentence word, or None
    """

    levels: tuple[Grams, ...]
    cost: tuple[NDArray[np.float64], ...]
    backoff: tuple[NDArray[np.float64], ...]
    bos: int | None = None
    eos: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

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
        rows: Sequence[NDArray[np.uint32]],
        cost: Sequence[NDArray[np.float64]],
        backoff: Sequence[NDArray[np.float64]],
        *,
        vocab_size: int,
        unseen_cost: float | None = None,
        bos: int | None = None,
        eos: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Tables:
        """A model from n-grams spelled out, in any order of rows.

        rows     tokens of each order n, uint32 [rows, n], ids below V
        cost     float64 [rows] each; backoff likewise, for orders 1..N-1
        unseen_cost  cost of ids without a unigram; None makes a missing unigram an error

        An n-gram hw whose h'w is missing gets it, with the probability that backing off gives; scores do not
        change (KenLM does the same). An n-gram whose context h is missing, or that comes twice, is an error.
        """
        check_vocabulary(vocab_size, len(rows))
        closed, costs, backoffs = close_suffixes(rows, cost, backoff)
        unigram = np.full(vocab_size, np.nan)
        again = np.bincount(closed[0][:, 0], minlength=vocab_size) > 1
        if again.any():
            token = int(again.argmax())
            raise BadRow(1, int(np.flatnonzero(closed[0][:, 0] == token)[1]), [token], "comes twice")
        unigram[closed[0][:, 0]] = costs[0]
        root_backoff = np.zeros(vocab_size)
        if backoffs:
            root_backoff[closed[0][:, 0]] = backoffs[0]
        missing = np.isnan(unigram)
        if missing.any():
            if unseen_cost is None:
                raise ValueError(
                    f"unigrams: expected all {vocab_size} ids, id {int(missing.argmax())} is missing; "
                    "give unseen_cost for such ids"
                )
            unigram[missing] = unseen_cost
        levels, done_cost, done_backoff = [Grams.unigrams(vocab_size)], [unigram], [root_backoff]
        for n in range(2, len(rows) + 1):
            level, order = index_rows(levels, closed[n - 1])
            own = costs[n - 1][order]
            blank = np.isnan(own)
            own[blank] = done_backoff[-1][level.prefix[blank]] + done_cost[-1][level.suffix[blank]]
            levels.append(level)
            done_cost.append(own)
            done_backoff.append(backoffs[n - 1][order] if n < len(rows) else np.zeros(0))
        return cls(
            levels=tuple(levels),
            cost=tuple(done_cost),
            backoff=tuple(done_backoff[: len(rows) - 1]),
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
        """A small model from {tokens: (probability, backoff weight)}, the weight 1 where there is no context."""
        order = max(map(len, ngrams), default=0)
        rows, cost, backoff = [], [], []
        for n in range(1, order + 1):
            own = [(tokens, p, b) for tokens, (p, b) in ngrams.items() if len(tokens) == n]
            rows.append(np.array([tokens for tokens, _, _ in own], np.uint32).reshape(len(own), n))
            cost.append(-np.log(np.array([p for _, p, _ in own], np.float64)))
            backoff.append(-np.log(np.array([b for _, _, b in own], np.float64)))
        return cls.from_rows(rows, cost, backoff[:-1], vocab_size=vocab_size, unseen_cost=unseen_cost)

    def spell(self, order: int) -> NDArray[np.uint32]:
        """The tokens of the n-grams of one order, uint32 [n, order], ascending."""
        return spell(self.levels, order)

    def keep(self, masks: Sequence[NDArray[np.bool_]]) -> Tables:
        """The model of the kept n-grams, with its old backoff costs.

        masks  bool [n] of orders 1, 2, ..; orders beyond go. Prefix and suffix of a kept n-gram must be kept.
        """
        return Tables(
            levels=select(self.levels[: len(masks)], masks),
            cost=tuple(c[m] for c, m in zip(self.cost, masks)),
            backoff=tuple(b[m] for b, m in zip(self.backoff, masks[:-1])),
            bos=self.bos,
            eos=self.eos,
            metadata=self.metadata,
        )
