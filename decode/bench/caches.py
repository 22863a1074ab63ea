"""Evicts the processor caches, as a forward pass does between two searches."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np

from rescore.decode.bench.clock import nothing

LINE = 64  # bytes


def sweep(megabytes: int) -> Callable[[], None]:
    """Returns a function that writes to every cache line of this much memory; 0: a function that does nothing."""
    if not megabytes:
        return nothing
    # Small pages, like most models' weights, so that TLB entries are evicted as well.
    lines = np.frombuffer(mmap.mmap(-1, megabytes << 20), np.uint64)[:: LINE // 8]

    def call() -> None:
        np.add(lines, 1, out=lines)

    return call
