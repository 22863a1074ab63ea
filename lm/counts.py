"""Counts of the n-grams of token sequences.

The documents of a text are separated by the end-of-text token, which ends one document and starts the context of
the next. It is therefore the first or the last token of an n-gram, never inside one:

    eot a b eot c eot     counted: [eot a] [a b] [b eot] [eot c] [eot a b] [a b eot] [eot c eot]; not [b eot c]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.lm.grams import Grams, check_vocabulary, pack
from rescore.lm.windows import join


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """How often each n-gram was seen.

    levels  n-grams of orders 1..N (`grams.py`); order 1 holds every id, seen or not
    count   N arrays int64 [n]
    bos     id of a word that is a context and never an event, or None; eos: id of the end of a sentence, or None
    """

    levels: tuple[Grams, ...]
    count: tuple[NDArray[np.int64], ...]
    bos: int | None = None
    eos: int | None = None

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

    def of_counts(self, order: int, upto: int) -> list[int]:
        """How many n-grams of an order were seen once, twice, .., `upto` times."""
        count = self.count[order - 1]
        return np.bincount(count[count <= upto], minlength=upto + 1)[1:].tolist()


def count(sequences: Iterable[ArrayLike], *, order: int, vocab_size: int, eot: int) -> Counts:
    """The counts of all n-grams of orders 1..`order` of the sequences.

    sequences  integer arrays [n] of ids in [0, V), each made of whole documents: an end-of-text is put before the
               first and after the last token of a sequence where it is missing. The one before the very first
               document is a context, not an event.

    Needs about 70 bytes per token.
    """
    check_vocabulary(vocab_size, order)
    if not 0 <= eot < vocab_size:
        raise ValueError(f"end-of-text id: expected 0..{vocab_size - 1}, got {eot}")
    tokens = join(sequences, vocab_size, eot)
    if len(tokens) == 1:
        raise ValueError("text to count: expected at least one token, got none")
    levels, counted = [Grams.unigrams(vocab_size)], [np.bincount(tokens[1:], minlength=vocab_size)]
    ids = tokens.astype(np.uint32)  # index of the n-gram that ends at each position, where whole is true
    whole = np.arange(len(tokens)) > 0
    for n in range(2, order + 1):
        if n > 2:  # the second of the n tokens has come inside: it must not be the end of a document
            whole[: n - 1] = False
            whole[n - 1 :] &= tokens[1 : len(tokens) - n + 2] != eot
        level, number = _count_next(tokens, ids, whole)
        levels.append(level)
        counted.append(number)
    return Counts(levels=tuple(levels), count=tuple(counted))


def _count_next(
    tokens: NDArray[np.generic], ids: NDArray[np.uint32], whole: NDArray[np.bool_]
) -> tuple[Grams, NDArray[np.int64]]:
    """The n-grams that end where `whole`, and their counts; `ids` of order n - 1 become those of order n."""
    keys = pack(ids[:-1], tokens[1:])[whole[1:]]
    by_key = np.argsort(keys)
    keys = keys[by_key]
    new = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    first = np.flatnonzero(new)
    keys = keys[first]
    suffix = ids[whole][by_key[first]]
    number = np.empty(len(by_key), np.uint32)
    number[by_key] = np.cumsum(new, dtype=np.uint32) - np.uint32(1)
    counted = np.diff(np.append(first, len(by_key)))
    ids[whole] = number
    level = Grams(
        prefix=(keys >> np.uint64(24)).astype(np.uint32),
        suffix=suffix,
        token=(keys & np.uint64(0xFFFFFF)).astype(np.uint32),
    )
    return level, counted
