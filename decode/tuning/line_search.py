"""The best of few trials of one number, each of which replays a dump."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

GOLDEN = (math.sqrt(5) - 1) / 2


class Trials:
    """The values of all numbers that were tried, each tried once."""

    def __init__(self, value_of: Callable[[float], float]):
        self._value_of = value_of
        self.values: dict[float, float] = {}

    def __call__(self, number: float) -> float:
        if number not in self.values:
            self.values[number] = self._value_of(number)
        return self.values[number]

    @property
    def best(self) -> float:
        """The number with the greatest value, the smallest of several."""
        return min(self.values, key=lambda number: (-self.values[number], number))


def refine(trials: Trials, grid: Sequence[float], steps: int) -> float:
    """Golden-section search (Kiefer 1953) between the neighbours in a sorted grid of its best number; the best of all
    trials.

    What is measured on a dump has steps and small hills, so the best trial counts, not the last.
    """
    at = max(range(len(grid)), key=lambda i: trials(grid[i]))
    low, high = grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)]
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    for _ in range(steps):
        if trials(left) >= trials(right):
            high, right = right, left
            left = high - GOLDEN * (high - low)
        else:
            low, left = left, right
            right = low + GOLDEN * (high - low)
    return trials.best


def climb(trials: Trials, grid: Sequence[float], start: int) -> float:
    """Uphill in a sorted grid from grid[start], until both neighbours are no better; the best of all trials."""
    at, before = start, -1
    while at != before:
        before = at
        near = [i for i in (at, at + 1, at - 1) if 0 <= i < len(grid)]
        at = max(near, key=lambda i: trials(grid[i]))
    return trials.best
