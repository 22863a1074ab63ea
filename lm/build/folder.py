"""Columns as files, which a build that was interrupted goes on with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from mmap import MADV_DONTNEED
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rescore.lattice.atomic import os_errors_of
from rescore.lm.model.columns import Columns, Parts, closing_generator


class Folder(Columns):
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
        super().__init__(threads)
        self.path, self._growing, self._whole = path, growing, whole
        self._finished = {} if finished is None else finished
        self._maps = [] if maps is None else maps
        path.mkdir(parents=True, exist_ok=True)

    def write(self, names: Mapping[str, DTypeLike], parts: Parts) -> list[NDArray[Any]]:
        if not self._are_finished(*names):
            with closing_generator(parts), os_errors_of(self.path), ExitStack() as stack:
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
            with os_errors_of(self.path), open(self.path / name, "wb") as file:
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
