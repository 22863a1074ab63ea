"""Counts of the n-grams of token sequences.

The documents of a text are separated by the end-of-text token, which ends one document and starts the context of
the next. It is therefore the first or the last token of an n-gram, never inside one:

    # a b # c #     counted, # being the end of text: [# a] [a b] [b #] [# c] [# a b] [a b #] [# c #]; not [b # c]

Only **windows** are counted: the window of a position is the longest n-gram that ends there, of at most N tokens.
Windows determine the counts of all orders, and sorting them once puts all orders into context order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.short_repr import short_repr
from rescore.lm.model.grams import Grams, check_vocabulary
from rescore.lm.model.tables import index_rows

MAX_COUNT = 1001  # counts of counts are kept for counts 1..MAX_COUNT


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions:
    """Options of counting.

    order       N, 1..7
    vocab_size  V; ids are in [0, V)
    end_of_text id of the end of text
    min_counts  smallest count kept, for orders 1, 2, ..; the last holds for all higher orders. The first is 1, since
                unigrams stay, and the numbers never fall, so that the context and suffix of a kept n-gram are kept
    """

    order: int
    vocab_size: int
    end_of_text: int
    min_counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_vocabulary(self.vocab_size, self.order)
        if not 0 <= self.end_of_text < self.vocab_size:
            raise ValueError(f"end-of-text id: expected 0..{self.vocab_size - 1}, got {self.end_of_text}")
        check_min_counts(self.min_counts, self.order)

    @property
    def least(self) -> list[int]:
        """The smallest count kept for each order 1..N."""
        given = self.min_counts or (1,)
        return [given[min(n, len(given) - 1)] for n in range(self.order)]


def check_min_counts(min_counts: Sequence[int], order: int) -> None:
    """Raises ValueError unless these are valid cut-offs for a model of this order."""
    if len(min_counts) > order:
        raise ValueError(f"min_counts: expected at most {order} orders, got {len(min_counts)}")
    if min_counts and (min_counts[0] != 1 or list(min_counts) != sorted(min_counts)):
        raise ValueError(
            f"min_counts: expected 1 for unigrams and counts that never fall after it, got {tuple(min_counts)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdjustedCounts:
    """The adjusted counts of Kneser-Ney (Chen and Goodman 1998, section 3): how many distinct tokens precede an n-gram.

    N-grams of order N, and those that begin with the end of text and so have no predecessor, keep their counts. Arrays
    are as in `Counts`: of n-grams that passed the cut-offs, with totals and counts of counts of all n-grams.
    """

    count: tuple[NDArray[np.uint64], ...]
    total: tuple[NDArray[np.uint64], ...]
    of_counts: tuple[list[int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """The counts of n-grams.

    levels      n-grams of orders 1..N that passed the cut-offs (`grams.py`); order 1 holds every id, seen or not
    count       N arrays uint64 [n]
    total       N - 1 arrays uint64 [C], for the contexts of orders 2..N: the count of all tokens after it, kept or not
    of_counts   N lists: [r] is how many n-grams were seen r times, before cut-offs, r = 1..MAX_COUNT; [0] more often
                often
    bos         id of a word that is a context and never an event, or None; eos: id of the end of a sentence, or None
    min_counts  the cut-offs
    adjusted    the adjusted counts, or None
    """

    levels: tuple[Grams, ...]
    count: tuple[NDArray[np.uint64], ...]
    total: tuple[NDArray[np.uint64], ...]
    of_counts: tuple[list[int], ...]
    bos: int | None = None
    eos: int | None = None
    min_counts: tuple[int, ...] = ()
    adjusted: AdjustedCounts | None = None

    __repr__ = short_repr

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def vocab_size(self) -> int:
        return len(self.levels[0])

    @property
    def tokens(self) -> int:
        """Number of tokens counted."""
        return int(self.count[0].sum())

    @property
    def seen(self) -> list[int]:
        """Number of n-grams of each order before cut-offs."""
        return [sum(own) for own in self.of_counts]

    @classmethod
    def from_rows(
        cls,
        rows: Sequence[NDArray[np.uint32]],
        count: Sequence[NDArray[np.uint64]],
        *,
        vocab_size: int,
        bos: int | None = None,
        eos: int | None = None,
        adjusted: bool = False,
    ) -> Counts:
        """Counts from all n-grams seen, as tokens uint32 [n, order] for each order."""
        levels, counts = [Grams.unigrams(vocab_size)], [np.zeros(vocab_size, np.uint64)]
        counts[0][rows[0][:, 0]] = count[0]
        for own, number in zip(rows[1:], count[1:]):
            level, order, _ = index_rows(levels, own, np.zeros(len(levels[-1]), bool))
            levels.append(level)
            counts.append(np.asarray(number, np.uint64)[order])
        return cls(
            levels=tuple(levels),
            count=tuple(counts),
            total=_totals(levels, counts),
            of_counts=tuple(of_counts(c) for c in counts),
            bos=bos,
            eos=eos,
            adjusted=_adjusted(levels, counts, bos) if adjusted else None,
        )


def _totals(levels: Sequence[Grams], counts: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], ...]:
    return tuple(np.add.reduceat(c, level.begin[:-1].astype(np.int64)) for level, c in zip(levels[1:], counts[1:]))


def _adjusted(levels: Sequence[Grams], counts: Sequence[NDArray[np.uint64]], bos: int | None) -> AdjustedCounts:
    """The adjusted counts of all n-grams seen; n-grams that begin with `bos` keep their counts."""
    found = []
    for level, longer, seen in zip(levels, levels[1:], counts):
        suffix = _core.suffixes(longer.native, level.native, 0, longer.contexts)
        before = np.bincount(suffix, minlength=len(level)).astype(np.uint64)
        if bos is not None and len(level.context_token):
            first = level.context_token[level.context()] == bos
            before[first] = seen[first]
        found.append(before)
    found.append(counts[-1])
    return AdjustedCounts(
        count=tuple(found), total=_totals(levels, found), of_counts=tuple(of_counts(own) for own in found)
    )


def of_counts(count: NDArray[np.uint64]) -> list[int]:
    """Counts of counts: [r] is how many counts equal r, r = 1..MAX_COUNT; [0] how many are greater."""
    few = np.bincount(count[count <= MAX_COUNT].astype(np.int64), minlength=MAX_COUNT + 1).tolist()
    return [int((count > MAX_COUNT).sum()), *few[1:]]
