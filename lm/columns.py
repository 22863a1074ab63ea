"""Where the long arrays of a model under construction are kept: in memory, or in the files of a folder.

Stages write columns part by part and read them back as arrays. Those of a folder are memory-mapped, so a model may
be larger than memory; `release` gives back the pages that were read so far.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from mmap import MADV_DONTNEED
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Parts = Iterable[Sequence[NDArray[Any]]]
Result = TypeVar("Result")


class Columns(Protocol):
    """Named arrays."""

    threads: int

    def write(self, names: dict[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        """Columns of the parts, each a sequence of arrays in the order of the names; read-only."""

    def empty(self, name: str, dtype: DTypeLike, length: int) -> NDArray[Any]:
        """A column that can be written to."""

    def release(self) -> None:
        """Called between parts of long work."""


class Memory:
    """Columns in memory."""

    def __init__(self, threads: int = 1) -> None:
        self.threads = threads

    def write(self, names: dict[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        every = list(parts)
        return [np.concatenate([np.zeros(0, dtype), *(part[i] for part in every)], dtype=dtype) for i, dtype in enumerate(names.values())]

    def empty(self, name: str, dtype: DTypeLike, length: int) -> NDArray[Any]:
        return np.empty(length, dtype)

    def release(self) -> None:
        pass


class Folder:
    """Columns as files NAME of raw little-endian numbers in a folder; a file that exists is overwritten."""

    def __init__(self, path: Path, threads: int = 1, check: Callable[[], None] = lambda: None) -> None:
        """check  called as files grow; raises where there is no room left"""
        self.path, self.threads, self._check = path, threads, check
        self._maps: list[np.memmap[Any, Any]] = []
        path.mkdir(parents=True, exist_ok=True)

    def write(self, names: dict[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        files = [open(self.path / name, "wb") for name in names]
        try:
            for part in parts:
                for file, array, dtype in zip(files, part, names.values(), strict=True):
                    file.write(np.ascontiguousarray(array, dtype).data)
                self._check()
        finally:
            for file in files:
                file.close()
        return [self.open(name, dtype) for name, dtype in names.items()]

    def empty(self, name: str, dtype: DTypeLike, length: int) -> NDArray[Any]:
        with open(self.path / name, "wb") as file:
            if length:  # a map of a file with holes would be killed, not refused, where the disk is full
                os.posix_fallocate(file.fileno(), 0, length * np.dtype(dtype).itemsize)
        self._check()
        return self.open(name, dtype, "r+")

    def open(self, name: str, dtype: DTypeLike, mode: Any = "r") -> NDArray[Any]:
        """A column that was written before."""
        if (self.path / name).stat().st_size == 0:
            return np.zeros(0, dtype)
        mapped = np.memmap(self.path / name, dtype, mode)
        self._maps.append(mapped)
        return mapped.view(np.ndarray)

    def release(self) -> None:
        for mapped in self._maps:
            mapped._mmap.madvise(MADV_DONTNEED)  # type: ignore[attr-defined]

    def forget(self) -> None:
        """Close the maps; arrays that are still in use keep theirs."""
        self._maps.clear()


def in_order(columns: Columns, work: Callable[..., Result], items: Iterable[Sequence[Any]]) -> Iterator[Result]:
    """work(*item) of every item, in their order, on the threads of `columns`, a few ahead."""
    with ThreadPoolExecutor(columns.threads) as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, *item))
                if len(ahead) > columns.threads:
                    yield ahead.popleft().result()
                    columns.release()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
