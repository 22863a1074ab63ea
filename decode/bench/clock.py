"""Timing: CPU time of the thread, minimum over rounds, to reduce the influence of other load."""

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
    """Returns the CPU microseconds of this thread in each call, the minimum over the rounds, after an untimed round.

    seconds  minimum duration of all rounds: the rounds of short calls would otherwise fall into the same few
             milliseconds, in which the machine may be busy
    before   called before each call, untimed
    """
    return _least(calls, rounds, seconds, time.thread_time_ns, before)


def least_wall_times(calls: Sequence[Callable[[], object]], rounds: int) -> NDArray[np.float64]:
    """Like `least_times`, in wall time, for calls that use several threads."""
    return _least(calls, rounds, 0, time.perf_counter_ns, nothing)


def figures(microseconds: NDArray[np.float64]) -> dict[str, float]:
    """Returns median_us, p99_us and mean_us over lattices."""
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
