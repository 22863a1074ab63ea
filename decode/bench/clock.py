"""The clock of the benchmarks: the thread's own, the least of the rounds, so that what else the machine does counts as
little as can be.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def nothing() -> None:
    pass


def least_times(
    calls: Sequence[Callable[[], object]], rounds: int, seconds: float = 0, before: Callable[[], object] = nothing
) -> NDArray[np.float64]:
    """Microseconds of this thread in each call, the least of the rounds, after a round that is not counted.

    seconds  rounds go on for so long at least: those of short calls would else all lie in the same few milliseconds, in
             which others may have the machine
    before   is called before each, and is not counted
    """
    return _least(calls, rounds, seconds, time.thread_time_ns, before)


def least_wall_times(calls: Sequence[Callable[[], object]], rounds: int) -> NDArray[np.float64]:
    """The same by the clock on the wall, for calls that work on several threads."""
    return _least(calls, rounds, 0, time.perf_counter_ns, nothing)


def figures(microseconds: NDArray[np.float64]) -> dict[str, float]:
    """median_us, p99_us and mean_us over lattices."""
    return {
        "median_us": float(np.median(microseconds)),
        "p99_us": float(np.percentile(microseconds, 99)),
        "mean_us": float(microseconds.mean()),
    }


def _least(
    calls: Sequence[Callable[[], object]],
    rounds: int,
    seconds: float,
    now: Callable[[], int],
    before: Callable[[], object],
) -> NDArray[np.float64]:
    least = np.full(len(calls), np.inf)
    for call in calls:
        call()
    end = time.monotonic() + seconds
    while rounds > 0 or time.monotonic() < end:
        for i, call in enumerate(calls):
            before()
            began = now()
            call()
            took = now() - began
            least[i] = min(least[i], took / 1e3)
        rounds -= 1
    return least
