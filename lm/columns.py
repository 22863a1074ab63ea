"""Storage of the long arrays of a model under construction: in memory, or in the files of a folder.

Stages write columns part by part and read them back as arrays. Columns in a folder are memory-mapped, so a model may
exceed memory; `release` frees the pages that were read so far.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from mmap import MADV_DONTNEED
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rescore.lattice.atomic import naming

RELEASE_SECONDS = 0.02  # each thread reads about 50 MB in this time
Parts = Iterable[Sequence[NDArray[Any]]]
Result = TypeVar("Result")


class Columns(Protocol):
    """A store of named arrays."""

    threads: int

    def write(self, names: dict[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        """Concatenates parts, each with one array per name, into read-only columns."""

    def fill(self, name: str, dtype: DTypeLike, length: int, body: Callable[[NDArray[Any]], None]) -> NDArray[Any]:
        """A column filled by `body`, which must write every entry, in any order."""

    def release(self) -> None:
        """Frees pages of memory; call it between parts of long work."""


class Memory:
    """Columns in memory."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def write(self, names: dict[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        every = list(parts)
        return [
            np.concatenate([np.zeros(0, dtype), *(part[i] for part in every)], dtype=dtype)
            for i, dtype in enumerate(names.values())
        ]

    def fill(self, name: str, dtype: DTypeLike, length: int, body: Callable[[NDArray[Any]], None]) -> NDArray[Any]:
        array = np.empty(length, dtype)
        body(array)
        return array

    def release(self) -> None:
        pass


class Folder:
    """Columns as files NAME of raw little-endian numbers in a folder."""

    def __init__(
        self,
        path: Path,
        threads: int = 1,
        *,
        finished: dict[str, int] | None = None,
        maps: list[np.memmap[Any, Any]] | None = None,
        growing: Callable[[int], None] = lambda bytes: None,
        whole: Callable[[], None] = lambda: None,
    ) -> None:
        """
        finished  sizes in bytes of complete columns, which are opened and not rewritten; updated here
        maps      maps of this and other folders, which are released together
        growing   called before each part is written, with its bytes; may raise if there is no room
        whole     called after each completed column
        """
        self.path, self.threads, self._growing, self._whole = path, threads, growing, whole
        self._finished = {} if finished is None else finished
        self._maps = [] if maps is None else maps
        path.mkdir(parents=True, exist_ok=True)

    def write(self, names: dict[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        if not self._are_finished(*names):
            with ending(parts), naming(self.path), ExitStack() as stack:
                files = [stack.enter_context(open(self.path / name, "wb")) for name in names]
                for part in parts:
                    arrays = [
                        np.ascontiguousarray(array, dtype) for array, dtype in zip(part, names.values(), strict=True)
                    ]
                    self._growing(sum(array.nbytes for array in arrays))
                    for file, array in zip(files, arrays):
                        file.write(array.data)
            self._finish(*names)
        return [self.open(name, dtype) for name, dtype in names.items()]

    def fill(self, name: str, dtype: DTypeLike, length: int, body: Callable[[NDArray[Any]], None]) -> NDArray[Any]:
        if not self._are_finished(name):
            self._growing(length * np.dtype(dtype).itemsize)
            with naming(self.path), open(self.path / name, "wb") as file:
                if length:  # on a full disk, writing to the map of a sparse file kills the process
                    os.posix_fallocate(file.fileno(), 0, length * np.dtype(dtype).itemsize)
            body(self.open(name, dtype, "r+"))
            self._finish(name)
        return self.open(name, dtype)

    def _are_finished(self, *names: str) -> bool:
        return all(
            (self.path / name).exists() and self._finished.get(name) == (self.path / name).stat().st_size
            for name in names
        )

    def _finish(self, *names: str) -> None:
        self._finished.update({name: (self.path / name).stat().st_size for name in names})
        self._whole()

    def open(self, name: str, dtype: DTypeLike, mode: Any = "r") -> NDArray[Any]:
        """Opens a column written earlier."""
        if (self.path / name).stat().st_size == 0:
            return np.zeros(0, dtype)
        mapped = np.memmap(self.path / name, dtype, mode)
        self._maps.append(mapped)
        return mapped.view(np.ndarray)

    def release(self) -> None:
        for mapped in self._maps:
            mapped._mmap.madvise(MADV_DONTNEED)  # type: ignore[attr-defined]


@contextmanager
def ending(parts: Iterable[Any]) -> Iterator[None]:
    """Closes the generator `parts` on leaving the block, so that no thread keeps writing to a folder after an error."""
    try:
        yield
    finally:
        if isinstance(parts, Generator):
            parts.close()


def blocks(columns: Columns, array: NDArray[Any], length: int = 1 << 20) -> Iterator[NDArray[Any]]:
    """Yields the array in parts and releases pages after each, so that the result need not fit in memory."""
    for at in range(0, len(array), length):
        yield array[at : at + length]
        columns.release()


def _releasing(future: Future[Result], columns: Columns) -> Result:
    """The result of a future. Releases pages while waiting: a single item may read much."""
    while not wait([future], RELEASE_SECONDS).done:
        columns.release()
    columns.release()
    return future.result()


def in_order(columns: Columns, work: Callable[..., Result], items: Iterable[Sequence[Any]]) -> Iterator[Result]:
    """Yields work(*item) for every item, in order, computed a few items ahead on the threads of `columns`."""
    with ThreadPoolExecutor(columns.threads) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, *item))
                if len(ahead) > columns.threads:
                    yield _releasing(ahead.popleft(), columns)
            while ahead:
                yield _releasing(ahead.popleft(), columns)
        finally:
            for future in ahead:
                future.cancel()
