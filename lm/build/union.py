"""The union of the n-grams of several models, and each model's costs for all of them.

The union is closed, as its parts are. From the root up, model j's cost of hw is its own if it has hw, and else its
backoff cost of h (0 if h is not a context of it) plus its cost of h'w.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.model.grams import MAX_VOCABULARY, TOKEN_BITS, Grams, pack
from rescore.lm.model.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Union:
    """The union of J models.

    levels    n-grams of orders 1..N of the longest model (`grams.py`)
    grams     for each model and each of its orders, the indices of its n-grams in `levels`: int64 [n], ascending
    contexts  the same for its contexts: int64 [C], ascending
    """

    levels: tuple[Grams, ...]
    grams: tuple[tuple[NDArray[np.int64], ...], ...]
    contexts: tuple[tuple[NDArray[np.int64], ...], ...]

    @classmethod
    def of(cls, models: Sequence[Tables]) -> Union:
        """The union of one or more models, with the largest of their vocabularies."""
        levels = [Grams.unigrams(max(model.vocab_size for model in models))]
        grams = [[np.arange(model.vocab_size)] for model in models]
        contexts = [[np.zeros(1, np.int64)] for _ in models]
        for order in range(2, max(model.order for model in models) + 1):
            having = [j for j, model in enumerate(models) if model.order >= order]
            own = [models[j].levels[order - 1] for j in having]
            keys, rows = _merged(
                [pack(contexts[j][-1][level.context_parent], level.context_token) for j, level in zip(having, own)]
            )
            for j, row in zip(having, rows):
                contexts[j].append(row)
            token_keys, rows = _merged(
                [pack(contexts[j][-1][level.context()], level.token) for j, level in zip(having, own)]
            )
            for j, row in zip(having, rows):
                grams[j].append(row)
            levels.append(_level(keys, token_keys))
        return cls(levels=tuple(levels), grams=tuple(map(tuple, grams)), contexts=tuple(map(tuple, contexts)))

    def costs(self, models: Sequence[Tables]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yields for orders 1..N each model's costs of all n-grams, float64 [J, n], and of backing off, float64 [J, C].

        The backoff cost of a context that a model does not know is 0. The models must have the same vocabulary.
        """
        below = np.empty((len(models), 0))
        for order, level in enumerate(self.levels, 1):
            backoff = np.zeros((len(models), level.contexts))
            cost = np.empty((len(models), len(level)))
            if order > 1:
                suffix = _core.suffixes(level.native, self.levels[order - 2].native, 0, level.contexts)
                context = level.context()
            for j, model in enumerate(models):
                if order > 1:
                    if order <= model.order:
                        backoff[j, self.contexts[j][order - 1]] = model.backoff[order - 2]
                    cost[j] = backoff[j][context] + below[j][suffix]
                if order <= model.order:
                    cost[j, self.grams[j][order - 1]] = model.cost[order - 1]
            yield cost, backoff
            below = cost


def _merged(keys: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], list[NDArray[np.int64]]]:
    """Merges ascending arrays into one without duplicates; also returns the positions of each array's entries."""
    every = np.sort(np.concatenate(keys), kind="stable")  # merges ascending runs
    every = every[np.concatenate([np.ones(1, bool), every[1:] != every[:-1]])] if len(every) else every
    return every, [np.searchsorted(every, own) for own in keys]


def _level(contexts: NDArray[np.uint64], grams: NDArray[np.uint64]) -> Grams:
    """An order from its sorted keys (parent, first token) and (context, last token)."""
    begin = np.searchsorted(grams, pack(np.arange(len(contexts) + 1), np.zeros(1))).astype(np.uint64)
    token = np.uint64(MAX_VOCABULARY - 1)
    return Grams(
        context_token=(contexts & token).astype(np.uint32),
        context_parent=(contexts >> np.uint64(TOKEN_BITS)).astype(np.uint32),
        begin=begin,
        token=(grams & token).astype(np.uint32),
    )
