"""The static n-gram cache of llama.cpp's `llama-lookup`, written from a model."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import atomic_file
from rescore.lm.model.grams import spell_contexts
from rescore.lm.model.ngram import NGram

SCALE = 10_000
CONTEXT = 2  # tokens, LLAMA_NGRAM_STATIC
HEAD = 5  # int32 before the pairs
RAREST = 64  # tokens that may carry the remaining mass


def save_lookup_cache(model: NGram, path: str | os.PathLike[str]) -> None:
    """Writes the trigrams of a model as a static cache, atomically. ValueError if the model has none."""
    with atomic_file(path) as file:
        file.write(lookup_cache(model).tobytes())


def lookup_cache(model: NGram) -> NDArray[np.int32]:
    """The file's content, int32."""
    if model.order <= CONTEXT:
        raise ValueError(f"n-gram model: expected order 3 or more, got {model.order}")
    tables = model.to_tables()
    grams = tables.levels[CONTEXT]
    owners, listed = grams.context(), np.exp(-tables.cost[CONTEXT])
    rest = np.maximum(1 - np.bincount(owners, listed, grams.contexts), 0)
    others = _others(tables.cost[0], owners, grams.token, grams.contexts)
    every = np.arange(grams.contexts)
    context = np.concatenate([owners, every, every]).astype(np.int64)
    token = np.concatenate([grams.token, others[:, 0], others[:, 1]]).astype(np.int64)
    count = np.rint(SCALE * np.concatenate([listed, rest / 2, rest / 2])).astype(np.int64)
    order = np.flatnonzero((count > 0) & (token >= 0))
    order = order[np.lexsort((token[order], context[order]))]
    return _records(spell_contexts(tables.levels, CONTEXT + 1), context[order], token[order], count[order])


def _others(
    cost: NDArray[np.float64], owners: NDArray[np.uint32], tokens: NDArray[np.uint32], contexts: int
) -> NDArray[np.int64]:
    """For each context two of the model's rarest tokens without a trigram in it, int64 [C, 2].

    -1 if fewer than two of the RAREST are free. cost: of unigrams [V].
    """
    rare = np.argsort(-cost, kind="stable")[:RAREST]
    found = np.tile(rare[:2], (contexts, 1))
    place = np.full(len(cost), -1)
    place[rare] = np.arange(len(rare))
    at = np.flatnonzero(place[tokens] >= 0)  # of few n-grams
    some, row = np.unique(owners[at], return_inverse=True)
    listed = np.zeros((len(some), len(rare)), bool)
    listed[row, place[tokens[at]]] = True
    free = (~listed).sum(axis=1, keepdims=True) >= 2
    found[some] = np.where(free, rare[np.argsort(listed, axis=1, kind="stable")[:, :2]], -1)
    return found


def _records(
    contexts: NDArray[np.uint32], context: NDArray[np.int64], token: NDArray[np.int64], count: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The records of the file.

    contexts [C, 2] are the tokens of contexts; context, token and count describe each pair, ascending by context.
    """
    used, first, sizes = np.unique(context, return_index=True, return_counts=True)
    starts = HEAD * np.arange(len(used)) + 2 * first
    found = np.full(HEAD * len(used) + 2 * len(token), -1, np.int32)
    for place in range(CONTEXT):
        found[starts + place] = contexts[used, place]
    found[starts + HEAD - 1] = sizes
    pairs = np.repeat(starts + HEAD, sizes) + 2 * (np.arange(len(token)) - np.repeat(first, sizes))
    found[pairs], found[pairs + 1] = token, count
    return found
