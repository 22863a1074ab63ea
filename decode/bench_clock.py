"""The clock of the benchmarks: the thread's own, the least of the rounds, so that what else the machine does counts as little as can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def least_times(calls: Sequence[Callable[[], object]], rounds: int) -> NDArray[np.float64]:
    """Microseconds of this thread in each call, the least of the rounds, after a round that is not counted."""
    return _least(calls, rounds, time.thread_time_ns)


def least_wall_times(calls: Sequence[Callable[[], object]], rounds: int) -> NDArray[np.float64]:
    """The same by the clock on the wall, for calls that work on several threads."""
    return _least(calls, rounds, time.perf_counter_ns)


def figures(microseconds: NDArray[np.float64]) -> dict[str, float]:
    """median_us, p99_us and mean_us over lattices."""
    return {"median_us": float(np.median(microseconds)), "p99_us": float(np.percentile(microseconds, 99)), "mean_us": float(microseconds.mean())}


def _least(calls: Sequence[Callable[[], object]], rounds: int, now: Callable[[], int]) -> NDArray[np.float64]:
    least = np.full(len(calls), np.inf)
    for number in range(rounds + 1):
        for i, call in enumerate(calls):
            began = now()
            call()
            took = now() - began
            if number:
                least[i] = min(least[i], took / 1e3)
    return least
