"""Perplexity of text, and which orders of n-grams it came from.

    nats per token = mean of -ln p(token | history)        perplexity = exp of it

A token is a hit of order n if its probability is that of an n-gram: the n - 1 tokens before it and itself are in the
model, and with one token more they are not. Backing off from the longer contexts is part of its cost.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.lattice.short_repr import short_repr
from rescore.lm.ngram import NGram

CHUNK = 1 << 20  # tokens scored at once
MOST_NATS = 700  # exp of more exceeds any number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Perplexity:
    """What a model of order N says of a text.

    hits  int64 [N], the tokens by the order of their hit, 1..N
    nats  float64 [N], the sum of their -ln p
    """

    hits: NDArray[np.int64]
    nats: NDArray[np.float64]

    __repr__ = short_repr

    @classmethod
    def nothing(cls, order: int) -> Perplexity:
        """That of no text."""
        return cls(hits=np.zeros(order, np.int64), nats=np.zeros(order))

    def __add__(self, other: Perplexity) -> Perplexity:
        return Perplexity(hits=self.hits + other.hits, nats=self.nats + other.nats)

    @property
    def tokens(self) -> int:
        return int(self.hits.sum())

    def overall(self) -> dict[str, Any]:
        """Its tokens, nats, nats_per_token and perplexity, for JSON; means are None where there is no token, the
        perplexity also where it exceeds any number.
        """
        return _means(self.tokens, float(self.nats.sum()))

    def to_json(self) -> dict[str, Any]:
        """`overall`, and the same `by_order` with the share of the tokens."""
        tokens, orders = self.tokens, zip(self.hits.tolist(), self.nats.tolist())
        by_order = [
            {"order": n, **_means(hits, nats), "share": hits / tokens if tokens else None}
            for n, (hits, nats) in enumerate(orders, 1)
        ]
        return {**self.overall(), "by_order": by_order}


def perplexity(model: NGram, texts: Iterable[ArrayLike], *, eot: int | None = None) -> Perplexity:
    """That of token arrays [n] which are read one after the other as one text; any number of them, each held alone.

    eot  the end-of-text token that the first follows; None: it follows nothing
    """
    state = model.start([] if eot is None else [eot])
    hits, nats = np.zeros(model.order, np.int64), np.zeros(model.order)
    for text in texts:
        tokens = np.asarray(text)
        for at in range(0, len(tokens), CHUNK):
            walk = model.walk(tokens[at : at + CHUNK], state)
            state = walk.after
            hits += np.bincount(walk.order, minlength=model.order + 1)[1:]
            nats += np.bincount(walk.order, walk.cost, minlength=model.order + 1)[1:]
    return Perplexity(hits=hits, nats=nats)


def _means(tokens: int, nats: float) -> dict[str, Any]:
    mean = nats / tokens if tokens else None
    return {
        "tokens": tokens,
        "nats": nats,
        "nats_per_token": mean,
        "perplexity": math.exp(mean) if mean is not None and mean < MOST_NATS else None,
    }
