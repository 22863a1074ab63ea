"""Caches as a forward pass leaves them: full of something else."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np

from rescore.decode.bench.clock import nothing

LINE = 64  # bytes


def sweep(megabytes: int) -> Callable[[], None]:
    """A call that writes to every line of so much memory; 0: one that does nothing."""
    if not megabytes:
        return nothing
    # In small pages, as most models' weights: the entries of the TLB go too.
    lines = np.frombuffer(mmap.mmap(-1, megabytes << 20), np.uint64)[:: LINE // 8]

    def call() -> None:
        np.add(lines, 1, out=lines)

    return call
