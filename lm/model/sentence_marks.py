"""Word models whose ARPA file lacks <s> or </s>, as KenLM scores them: both are then the unknown word."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rescore.lm.model.arpa import BOS, EOS, UNK
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import NEVER, Tables


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
    grams = [
        (tables.spell(order) if order > 1 else np.arange(tables.vocab_size, dtype=np.uint32)[:, None], cost, backoff)
        for order, (cost, backoff) in enumerate(
            zip(tables.cost, [*map(np.nan_to_num, tables.gram_backoffs()), np.zeros(len(tables.cost[-1]))]), 1
        )
    ]
    for mark, place in ((BOS, 0), (EOS, -1)):
        if mark not in model.words:
            grams = [_with_copies(*own, place, number[UNK], number[mark]) for own in grams]
    grams[0][1][number[BOS]] = NEVER
    rows, cost, backoff = zip(*grams)
    tables = Tables.from_rows(
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
