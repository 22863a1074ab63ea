"""Backoff weights: what makes the probabilities after a context sum to one.

bow(h) = (1 - sum of p(w | h)) / (1 - sum of p(w | h')),   both over the words w that h has n-grams for
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rescore.lm.tables import Tables

# A mass below this is taken for none: what is left of 1 after a sum in double precision.
NO_MASS = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Left:
    """What the n-grams hw of one order leave of each context h, the n-grams of the order below.

    own    float64 [contexts], 1 - sum of p(w | h)
    lower  float64 [contexts], 1 - sum of p(w | h') over the same words
    """

    own: NDArray[np.float64]
    lower: NDArray[np.float64]


def left_mass(tables: Tables, order: int) -> Left:
    """The mass that the n-grams of `order` (2..N) leave to each of their contexts."""
    level, contexts = tables.levels[order - 1], len(tables.levels[order - 2])
    own = level.total(np.exp(-tables.cost[order - 1]), contexts)
    lower = level.total(np.exp(-tables.cost[order - 2])[level.suffix], contexts)
    return Left(own=1.0 - own, lower=1.0 - lower)


def with_backoff(tables: Tables) -> Tables:
    """The model with its backoff costs made anew from its probabilities; every context then sums to one.

    Where a context leaves no mass, or where the shorter context has none for other words, its probabilities
    are scaled first: by c/(c + 1), c the inverse of its smallest probability (as though one more event of another kind had been
    seen), or to the sum 1.
    """
    costs, backoffs = list(tables.cost), []
    for order in range(2, tables.order + 1):
        current = replace(tables, cost=tuple(costs))
        left = left_mass(current, order)
        scale = _scale(current, order, left)
        costs[order - 1] = costs[order - 1] - np.log(scale)[tables.levels[order - 1].prefix]
        own = 1.0 - (1.0 - left.own) * scale
        closed = left.lower < NO_MASS
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = np.log(left.lower) - np.log(own)
        backoffs.append(np.where(closed, 0.0, cost) + 0.0)
    return replace(tables, cost=tuple(costs), backoff=tuple(backoffs))


def _scale(tables: Tables, order: int, left: Left) -> NDArray[np.float64]:
    """Factor for the probabilities of each context: 1 but in the two cases of `with_backoff`."""
    scale = np.ones(len(left.own))
    level = tables.levels[order - 1]
    closed = (left.lower < NO_MASS) & (left.own < 1.0)
    scale[closed] = 1.0 / (1.0 - left.own[closed])
    full = (left.own < NO_MASS) & ~closed
    if full.any():
        largest_cost = np.zeros(len(left.own))
        np.maximum.at(largest_cost, level.prefix, tables.cost[order - 1])
        events = np.exp(largest_cost[full])
        scale[full] = events / (events + 1.0) / (1.0 - left.own[full])
    return scale


def sums(tables: Tables) -> list[NDArray[np.float64]]:
    """Sum of the probabilities over the whole vocabulary: of the root [1], then of the contexts of each order [n]."""
    total = [np.array([np.exp(-tables.cost[0]).sum()])]
    for order in range(2, tables.order + 1):
        left = left_mass(tables, order)
        shorter = total[-1][tables.levels[order - 2].suffix]
        bow = np.exp(-tables.backoff[order - 2])
        total.append(1.0 - left.own + bow * (shorter - (1.0 - left.lower)))
    return total
