"""Backoff weights: what makes the probabilities after a context sum to one.

bow(h) = (1 - sum of p(w | h)) / (1 - sum of p(w | h')),   both over the words w that h has n-grams for
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.columns import Columns, Memory, in_order
from rescore.lm.tables import Tables


def with_backoff(tables: Tables, columns: Columns | None = None) -> Tables:
    """The model with its backoff costs made anew from its probabilities; every context then sums to one.

    Where a context leaves no mass, or where the shorter context has none for other words, its probabilities
    are scaled first: by c/(c + 1), c the inverse of its smallest probability (as though one more event of another kind
    had been seen), or to the sum 1.
    """
    columns = columns or Memory()
    costs, backoffs = [tables.cost[0]], []
    for order in range(2, tables.order + 1):
        level = tables.levels[order - 1]
        native = tables.levels[order - 1].native
        below = tables.levels[order - 2].native
        below_cost, cost = costs[-1], tables.cost[order - 1]

        def part(
            a: int, b: int, native=native, below=below, below_cost=below_cost, cost=cost
        ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
            return _core.normalise(native, below, below_cost, cost, a, b)

        new, backoff = columns.write(
            {f"{order}.cost": np.float64, f"{order}.backoff": np.float64}, in_order(columns, part, level.ranges())
        )
        costs.append(new)
        backoffs.append(backoff)
    return replace(tables, cost=tuple(costs), backoff=tuple(backoffs))


def sums(tables: Tables) -> list[NDArray[np.float64]]:
    """Sum of the probabilities over the whole vocabulary: of the root [1], then of the contexts of each order [C]."""
    total = [np.array([np.exp(-tables.cost[0]).sum()])]
    for n in range(2, tables.order + 1):
        level, below = tables.levels[n - 1], tables.levels[n - 2]
        total.append(
            _core.sums(
                level.native,
                below.native,
                tables.cost[n - 2],
                tables.cost[n - 1],
                tables.backoff[n - 2],
                total[-1],
                0,
                level.contexts,
            )
        )
    return total
