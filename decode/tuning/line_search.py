"""Line search over one number with few trials, each a replay of the tuning part."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

GOLDEN = (math.sqrt(5) - 1) / 2


class Trials:
    """Evaluates numbers, each at most once, and keeps their values."""

    def __init__(self, value_of: Callable[[float], float]):
        self._value_of = value_of
        self.values: dict[float, float] = {}

    def __call__(self, number: float) -> float:
        if number not in self.values:
            self.values[number] = self._value_of(number)
        return self.values[number]

    @property
    def best(self) -> float:
        """The number with the greatest value; the smallest on ties."""
        return min(self.values, key=lambda number: (-self.values[number], number))


def refine(trials: Trials, grid: Sequence[float], steps: int) -> float:
    """Golden-section search (Kiefer 1953) between the neighbours of the best number of a sorted grid.

    Returns the best of all trials, not the last one: measures on a dump are neither smooth nor unimodal.
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
    """Climbs a sorted grid from grid[start] until neither neighbour is better. Returns the best of all trials."""
    at, before = start, -1
    while at != before:
        before = at
        near = [i for i in (at, at + 1, at - 1) if 0 <= i < len(grid)]
        at = max(near, key=lambda i: trials(grid[i]))
    return trials.best
