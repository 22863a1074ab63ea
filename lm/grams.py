"""The n-grams of one order, as a sorted table that points into the order below.

Every stage that makes or changes a model (counting, Katz, pruning, ARPA, OpenFst) works on these tables;
the automaton of `ngram.py` is compiled from them. An n-gram hw, h' being h without its first token, is its

    prefix  index of h among the n-grams of order n - 1 (0 for order 1)
    suffix  index of h'w among the n-grams of order n - 1 (0 for order 1)
    token   w

The rows of an order ascend lexicographically by their tokens, which is the order of (prefix, token). Order 1
holds every id of the vocabulary, so that there the index is the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOKEN_BITS = 24
MAX_VOCABULARY = 1 << TOKEN_BITS
MAX_ORDER = 7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grams:
    """The n-grams of one order: prefix, suffix, token uint32 [n], ascending by (prefix, token), no row twice."""

    prefix: NDArray[np.uint32]
    suffix: NDArray[np.uint32]
    token: NDArray[np.uint32]

    @classmethod
    def unigrams(cls, vocab_size: int) -> Grams:
        """Order 1 of a vocabulary: every id once."""
        zero = np.zeros(vocab_size, np.uint32)
        return cls(prefix=zero, suffix=zero, token=np.arange(vocab_size, dtype=np.uint32))

    def __len__(self) -> int:
        return len(self.token)

    def keys(self) -> NDArray[np.uint64]:
        """Prefix and token of each row in one number, uint64 [n], ascending."""
        return pack(self.prefix, self.token)

    def begin(self, contexts: int) -> NDArray[np.int64]:
        """Where the rows of each prefix start, int64 [contexts + 1]."""
        begin = np.zeros(contexts + 1, np.int64)
        np.cumsum(np.bincount(self.prefix, minlength=contexts), out=begin[1:])
        return begin

    def total(self, values: NDArray[Any], contexts: int) -> NDArray[np.float64]:
        """Sum of `values` [n] over the rows of each prefix, float64 [contexts]."""
        return np.asarray(np.bincount(self.prefix, weights=values, minlength=contexts), np.float64)

    def find(self, prefix: NDArray[Any], token: NDArray[Any]) -> NDArray[np.int64]:
        """Row of each (prefix, token), int64 [m]; -1 where there is none. A negative prefix finds nothing."""
        prefix = np.asarray(prefix, np.int64)
        if not len(self):
            return np.full(len(prefix), -1, np.int64)
        keys = self.keys()
        wanted = pack(np.maximum(prefix, 0), token)
        row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1).astype(np.int64)
        return np.where((keys[row] == wanted) & (prefix >= 0), row, -1)


def pack(prefix: NDArray[Any], token: NDArray[Any]) -> NDArray[np.uint64]:
    """One uint64 per (prefix, token), in the same order."""
    return (np.asarray(prefix).astype(np.uint64) << np.uint64(TOKEN_BITS)) | np.asarray(token).astype(np.uint64)


def select(levels: Sequence[Grams], keep: Sequence[NDArray[np.bool_]]) -> tuple[Grams, ...]:
    """The kept rows of every order, renumbered. Prefix and suffix of a kept row must be kept."""
    kept: list[Grams] = []
    number = np.zeros(1, np.uint32)
    for level, mask in zip(levels, keep, strict=True):
        kept.append(
            Grams(prefix=number[level.prefix[mask]], suffix=number[level.suffix[mask]], token=level.token[mask])
        )
        number = (np.cumsum(mask, dtype=np.int64) - 1).astype(np.uint32)
    return tuple(kept)


def spell(levels: Sequence[Grams], order: int) -> NDArray[np.uint32]:
    """The tokens of the n-grams of one order, uint32 [n, order]."""
    tokens = np.empty((len(levels[order - 1]), order), np.uint32)
    row: NDArray[Any] = np.arange(len(levels[order - 1]))
    for place in range(order - 1, -1, -1):
        tokens[:, place] = levels[place].token[row]
        row = levels[place].prefix[row]
    return tokens


def check_vocabulary(vocab_size: int, order: int) -> None:
    """ValueError unless a model of this vocabulary and order can be made."""
    if not 1 <= vocab_size <= MAX_VOCABULARY:
        raise ValueError(f"vocabulary size: expected 1..{MAX_VOCABULARY}, got {vocab_size}")
    if not 1 <= order <= MAX_ORDER:
        raise ValueError(f"order of the n-gram model: expected 1..{MAX_ORDER}, got {order}")
