"""Runs work on threads. The native core and NumPy release the GIL while they compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item], workers: int = 1) -> Iterator[Answer]:
    """Yields `work` of every item, in order. One worker is lazy; several consume all items at once."""
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, items)
