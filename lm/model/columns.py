"""A store of named arrays, in memory or as files (`lm/build/folder.py`), filled in order by work on threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rescore.lm.model.grams import Grams

BLOCK = 1 << 20  # entries
RELEASE_SECONDS = 0.02  # each thread reads about 50 MB in this time
Parts = Iterable[Sequence[NDArray[Any]]]
Result = TypeVar("Result")


class Columns:
    """A store of named arrays, in memory."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def write(self, names: Mapping[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        """Concatenates parts, each with one array per name, into columns that are only read."""
        every = list(parts)
        return [
            np.concatenate([np.zeros(0, dtype), *(part[i] for part in every)], dtype=dtype)
            for i, dtype in enumerate(names.values())
        ]

    def fill(self, name: str, dtype: DTypeLike, length: int, body: Callable[[NDArray[Any]], None]) -> NDArray[Any]:
        """A column filled by `body`, which must write every entry, in any order."""
        array = np.empty(length, dtype)
        body(array)
        return array

    def release(self) -> None:
        """Frees pages of memory; call it between parts of long work."""


@contextmanager
def closing_generator(parts: Iterable[Any]) -> Iterator[None]:
    """Closes the generator `parts` on leaving the block, so that no thread keeps writing to a folder after an error."""
    try:
        yield
    finally:
        if isinstance(parts, Generator):
            parts.close()


def blocks(columns: Columns, array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yields the array in parts and releases pages after each, so that the result need not fit in memory."""
    for at in range(0, len(array), BLOCK):
        yield array[at : at + BLOCK]
        columns.release()


def _releasing(future: Future[Result], columns: Columns) -> Result:
    """The result of a future. Releases pages while waiting: a single item may read much."""
    while not wait([future], RELEASE_SECONDS).done:
        columns.release()
    columns.release()
    return future.result()


def in_order(columns: Columns, work: Callable[..., Result], items: Iterable[Sequence[Any]]) -> Iterator[Result]:
    """Yields work(*item) for every item, in order, computed a few items ahead on the threads of `columns`. An error of
    `items` comes after the results of the items before it.
    """
    with ThreadPoolExecutor(columns.threads) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for future in _begun(pool, work, items):
                ahead.append(future)
                if len(ahead) > columns.threads:
                    yield _releasing(ahead.popleft(), columns)
            while ahead:
                yield _releasing(ahead.popleft(), columns)
        finally:
            for future in ahead:
                future.cancel()


def _begun(
    pool: ThreadPoolExecutor, work: Callable[..., Result], items: Iterable[Sequence[Any]]
) -> Iterator[Future[Result]]:
    try:
        for item in items:
            yield pool.submit(work, *item)
    except Exception as error:
        failed: Future[Result] = Future()
        failed.set_exception(error)
        yield failed


def over_contexts(
    columns: Columns, names: Mapping[str, DTypeLike], work: Callable[..., Any], level: Grams, *given: Any
) -> list[NDArray[Any]]:
    """Columns of what `work`, a function of the core, returns for ranges of a level's contexts: one array or several.

    It is called with the level, `given` and the range.
    """

    def part(a: int, b: int) -> Sequence[NDArray[Any]]:
        found = work(native, *given, a, b)
        return found if isinstance(found, tuple) else (found,)

    native = level.native
    return columns.write(names, in_order(columns, part, level.ranges()))
