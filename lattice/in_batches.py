"""Items that follow each other, in lists of about one size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def in_batches(items: Iterable[Item], size: Callable[[Item], int], least: int) -> Iterator[list[Item]]:
    """Yields lists of items whose sizes sum to at least `least`; those of the last list may sum to less."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if total >= least:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
