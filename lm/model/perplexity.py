"""Perplexity of text, and the order of the n-gram hit by each token.

    nats per token = mean of -ln p(token | history)        perplexity = exp(nats per token)

A token is a hit of order n if the n-gram of it and the n - 1 tokens before it is in the model, and the longer n-gram
with one token more is not. The backoff costs from longer contexts are part of its cost.

Word models whose ARPA file lacks <s> or </s> are scored as by KenLM: both are then the unknown word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.lattice.checked import numbers
from rescore.lattice.short_repr import short_repr
from rescore.lm.model.gram_rows import tables_of_rows
from rescore.lm.model.ngram import BOS, EOS, UNK, NGram
from rescore.lm.model.tables import NEVER

CHUNK = 1 << 20  # tokens scored at once
MOST_NATS = 700  # exp of more overflows


class Scored(NamedTuple):
    """Tokens [n], their costs float32 [n] in nats, and the orders of their hits uint8 [n]."""

    tokens: NDArray[Any]
    cost: NDArray[np.float32]
    order: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Perplexity:
    """The perplexity of a text under a model of order N.

    hits      int64 [N], number of tokens by the order of their hit, 1..N
    nats      float64 [N], the sum of their -ln p
    oov       number of <unk> tokens, which are words that the model does not know
    oov_nats  the sum of their -ln p
    """

    hits: NDArray[np.int64]
    nats: NDArray[np.float64]
    oov: int = 0
    oov_nats: float = 0.0

    __repr__ = short_repr

    @classmethod
    def nothing(cls, order: int) -> Perplexity:
        """The perplexity of an empty text."""
        return cls(hits=np.zeros(order, np.int64), nats=np.zeros(order))

    def __add__(self, other: Perplexity) -> Perplexity:
        return Perplexity(
            hits=self.hits + other.hits,
            nats=self.nats + other.nats,
            oov=self.oov + other.oov,
            oov_nats=self.oov_nats + other.oov_nats,
        )

    @classmethod
    def of(cls, scores: Scored, order: int, unknown: int | None = None) -> Perplexity:
        """The perplexity of scored tokens. unknown: the id of <unk>, or None."""
        oov = np.zeros(0) if unknown is None else scores.cost[scores.tokens == unknown]
        return cls(
            hits=np.bincount(scores.order, minlength=order + 1)[1:],
            nats=np.bincount(scores.order, scores.cost, minlength=order + 1)[1:].astype(np.float64, copy=False),
            oov=len(oov),
            oov_nats=float(oov.sum(dtype=np.float64)),
        )

    @property
    def tokens(self) -> int:
        return int(self.hits.sum())

    def overall(self) -> dict[str, Any]:
        """tokens, nats, nats_per_token and perplexity, for JSON.

        The latter two are None without tokens; the perplexity is also None if it would overflow.
        """
        return _means(self.tokens, float(self.nats.sum()))

    def without_oov(self) -> dict[str, Any]:
        """`overall` without the <unk> tokens."""
        return _means(self.tokens - self.oov, float(self.nats.sum()) - self.oov_nats)

    def to_json(self) -> dict[str, Any]:
        """`overall`, and the same `by_order` with each order's share of the tokens."""
        tokens, orders = self.tokens, zip(self.hits.tolist(), self.nats.tolist())
        by_order = [
            {"order": n, **_means(hits, nats), "share": hits / tokens if tokens else None}
            for n, (hits, nats) in enumerate(orders, 1)
        ]
        return {**self.overall(), "by_order": by_order}


def perplexity(
    model: NGram, texts: Iterable[ArrayLike], *, end_of_text: int | None = None, bos: int | None = None
) -> Perplexity:
    """The perplexity of token arrays [n], read one after the other as one text (see `score_texts`)."""
    total = Perplexity.nothing(model.order)
    for part in score_texts(model, texts, end_of_text=end_of_text, bos=bos):
        total += Perplexity.of(part, model.order)
    return total


def score_texts(
    model: NGram, texts: Iterable[ArrayLike], *, end_of_text: int | None = None, bos: int | None = None
) -> Iterator[Scored]:
    """Yields the scored tokens of token arrays [n], read one after the other as one text.

    Only one array is held in memory at a time.

    end_of_text  the end-of-text token that precedes the first token; None: the history is empty
    bos  the token that starts each document's context, the first and those after an `end_of_text`; None: `end_of_text`
    """
    begin = end_of_text if bos is None else bos
    state = model.start([] if begin is None else [begin])
    for text in texts:
        tokens = np.atleast_1d(numbers(text, "tokens"))
        for at in range(0, len(tokens), CHUNK):
            part = tokens[at : at + CHUNK]
            ends = np.zeros(0, np.int64) if bos in (None, end_of_text) else np.flatnonzero(part == end_of_text) + 1
            walk = model.walk(part if bos is None else np.insert(part, ends, bos), state)
            state = walk.after
            kept = np.ones(len(walk.cost), bool)
            kept[ends + np.arange(len(ends))] = False
            yield Scored(part, walk.cost[kept], walk.order[kept])


def _means(tokens: int, nats: float) -> dict[str, Any]:
    mean = nats / tokens if tokens else None
    return {
        "tokens": tokens,
        "nats": nats,
        "nats_per_token": mean,
        "perplexity": math.exp(mean) if mean is not None and mean < MOST_NATS else None,
    }


def with_sentence_marks(model: NGram) -> NGram:
    """The model with the missing marks as words of their own, which have the n-grams of <unk>.

    <s> begins the n-grams that <unk> begins, and </s> ends those that <unk> ends; the probabilities of a context then
    sum to more than 1. A model that lacks no mark comes back as it is.
    """
    if not model.metadata.get("lacks_sentence_marks") or model.words is None:
        return model
    words = [*model.words, *(mark for mark in (BOS, EOS) if mark not in model.words)]
    number = {word: token for token, word in enumerate(words)}
    tables = model.to_tables()
    backoffs = [*map(np.nan_to_num, tables.gram_backoffs()), np.zeros(len(tables.cost[-1]))]
    grams = list(zip(map(tables.spell, range(1, tables.order + 1)), tables.cost, backoffs))
    for mark, place in ((BOS, 0), (EOS, -1)):
        if mark not in model.words:
            grams = [_with_copies(*own, place, number[UNK], number[mark]) for own in grams]
    grams[0][1][number[BOS]] = NEVER
    rows, cost, backoff = zip(*grams)
    tables = tables_of_rows(
        rows, cost, backoff[:-1], vocab_size=len(words), bos=number[BOS], eos=number[EOS], metadata=tables.metadata
    )
    return NGram.from_tables(tables, words=words, metadata={"lacks_sentence_marks": False})


Grams = tuple[NDArray[np.uint32], NDArray[np.float64], NDArray[np.float64]]


def _with_copies(
    rows: NDArray[np.uint32], cost: NDArray[np.float64], backoff: NDArray[np.float64], place: int, of: int, token: int
) -> Grams:
    """N-grams of one order, and those that have the token `of` in a place again with another token there."""
    own = rows[:, place] == of
    copies = rows[own]
    copies[:, place] = token
    return np.concatenate([rows, copies]), np.append(cost, cost[own]), np.append(backoff, backoff[own])
