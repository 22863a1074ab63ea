"""The n-grams of one order, in context order, as tables that the native core reads.

N-grams hw are sorted by their context h read backwards, last token first, and then by w. Let h' be h without its first
token. Contexts with the same suffix are then neighbours: those that extend h' are its children in a trie. Computations
that need h'w beside hw walk two orders in step, without searching or sorting:

    order 2   context (b)                     its n-grams b w
    order 3   contexts (a b), (c b), ..       neighbours, with parent (b), and their n-grams a b w, c b w

A model that holds hw also holds h and h'w. Order 1 has one context, the empty one, and every id of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.checked import whole
from rescore.lattice.short_repr import short_repr

TOKEN_BITS = 24
MAX_VOCABULARY = 1 << TOKEN_BITS
MAX_ORDER = 7
NO_CONTEXT = 0xFFFFFFFF
NOTHING = np.zeros(0, np.uint32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grams:
    """The n-grams of one order and their C contexts.

    context_token   uint32 [C], the first token of each context; empty for order 1
    context_parent  uint32 [C], the context without that token, as an index into the contexts of the order below (0 for
                    order 2); empty for order 1
    begin           uint64 [C + 1], where the n-grams of each context start
    token           uint32 [n], the last token of each n-gram, ascending within a context
    """

    context_token: NDArray[np.uint32]
    context_parent: NDArray[np.uint32]
    begin: NDArray[np.uint64]
    token: NDArray[np.uint32]

    __repr__ = short_repr

    @classmethod
    def unigrams(cls, vocab_size: int) -> Grams:
        """The n-grams of order 1: every id once."""
        return cls(
            context_token=NOTHING,
            context_parent=NOTHING,
            begin=np.array([0, vocab_size], np.uint64),
            token=np.arange(vocab_size, dtype=np.uint32),
        )

    def __len__(self) -> int:
        return len(self.token)

    @property
    def contexts(self) -> int:
        return len(self.begin) - 1

    @property
    def native(self) -> _core.Level:
        """The arrays as the core's Level."""
        return _core.Level(self.context_token, self.context_parent, self.begin, self.token)

    def context(self) -> NDArray[np.uint32]:
        """The context of each n-gram, uint32 [n]."""
        return np.repeat(np.arange(self.contexts, dtype=np.uint32), np.diff(self.begin).astype(np.int64))

    def ranges(self, grams: int = 1 << 20) -> Iterator[tuple[int, int]]:
        """Yields ranges (from, to) of contexts with about `grams` n-grams each."""
        first = 0
        while first < self.contexts:
            limit = self.begin[first] + np.uint64(grams)
            last = max(int(np.searchsorted(self.begin, limit, "right")) - 1, first + 1)
            yield first, min(last, self.contexts)
            first = last

    def find(self, context: NDArray[Any], token: NDArray[Any]) -> NDArray[np.int64]:
        """The index of each n-gram (context, token), int64 [m]; -1 if there is none or the context is negative."""
        return _find(pack(self.context(), self.token), context, token)

    def find_context(self, parent: NDArray[Any], token: NDArray[Any]) -> NDArray[np.int64]:
        """The index of each context (parent, first token), int64 [m]; -1 if there is none."""
        return _find(pack(self.context_parent, self.context_token), parent, token)


def _find(keys: NDArray[np.uint64], high: NDArray[Any], low: NDArray[Any]) -> NDArray[np.int64]:
    high = np.asarray(high, np.int64)
    if not len(keys):
        return np.full(len(high), -1, np.int64)
    wanted = pack(np.maximum(high, 0), low)
    row = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1).astype(np.int64)
    return np.where((keys[row] == wanted) & (high >= 0), row, -1)


def pack(high: NDArray[Any], token: NDArray[Any]) -> NDArray[np.uint64]:
    """Packs each (number, token) into a uint64 that sorts in the same order."""
    return (np.asarray(high).astype(np.uint64) << np.uint64(TOKEN_BITS)) | np.asarray(token).astype(np.uint64)


def spell_contexts(levels: Sequence[Grams], order: int) -> NDArray[np.uint32]:
    """The tokens of the contexts of one order (at least 2), uint32 [C, order - 1]."""
    tokens = np.empty((levels[order - 1].contexts, order - 1), np.uint32)
    row: NDArray[Any] = np.arange(levels[order - 1].contexts)
    for place in range(order - 1):
        level = levels[order - 1 - place]
        tokens[:, place] = level.context_token[row]
        row = level.context_parent[row]
    return tokens


def spell_context(levels: Sequence[Grams], order: int, context: int) -> tuple[int, ...]:
    """The tokens of one context of an order."""
    tokens = []
    for level in levels[order - 1 : 0 : -1]:
        tokens.append(int(level.context_token[context]))
        context = int(level.context_parent[context])
    return tuple(tokens)


def spell(levels: Sequence[Grams], order: int) -> NDArray[np.uint32]:
    """The tokens of the n-grams of one order, uint32 [n, order]."""
    level = levels[order - 1]
    if order == 1:
        return level.token.reshape(-1, 1)
    return np.column_stack([spell_contexts(levels, order)[level.context()], level.token])


def token_dtype(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """The dtype of token arrays for a vocabulary."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def check_vocabulary(vocab_size: int, order: int) -> None:
    """Raises ValueError if the vocabulary size or the order is out of range."""
    whole(vocab_size, "vocabulary size", 1, MAX_VOCABULARY)
    whole(order, "order of the n-gram model", 1, MAX_ORDER)
