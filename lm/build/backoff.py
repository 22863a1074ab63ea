"""Backoff weights, which make the probabilities after each context sum to one.

bow(h) = (1 - sum of p(w | h)) / (1 - sum of p(w | h')),   both sums over the words w with an n-gram hw
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.model.tables import Columns, Memory, Tables, in_order


def with_backoff(tables: Tables, columns: Columns | None = None) -> Tables:
    """The model with backoff costs computed from its probabilities, so that every context sums to one.

    Two kinds of contexts are rescaled first. If a context leaves no mass to back off with, its probabilities are scaled
    by c / (c + 1), where c is the inverse of the smallest, as if one more event had been seen. If the shorter context
    has no mass for other words, they are scaled to sum to 1.
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
