"""Work on several things at once. The core lets other threads run while it searches, numpy while it computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item], workers: int = 1) -> Iterator[Answer]:
    """`work` of every item, in their order; one worker takes an item when the answer before was taken, several take
    all of them at once.
    """
    if workers == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from pool.map(work, items)
