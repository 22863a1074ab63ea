"""Merges runs on disk into the n-grams of every order on disk, slice by slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import os_errors_of
from rescore.lm.build.counts import ADJUSTED, COLUMNS, CountOptions, Counts, Run, SlicePart, SliceSums, slice_levels
from rescore.lm.build.folder import Folder
from rescore.lm.build.work import WorkFolder, expect_bytes
from rescore.lm.model.columns import closing_generator, in_order
from rescore.lm.model.grams import NO_CONTEXT

COPY_BYTES = 8 << 20


def merge_runs(
    work: WorkFolder,
    runs: Sequence[Run],
    options: CountOptions,
    threads: int,
    *,
    adjusted: bool = False,
    progress: Callable[[int], None] = lambda done: None,
) -> Counts:
    """Merges the runs into the counts of every order.

    adjusted  also compute the adjusted counts of Kneser-Ney
    progress  called with the bytes of runs merged so far
    """
    state = work.begin("merge", {"adjusted": True} if adjusted else {})
    columns = work.columns("merge", state, threads)
    state.setdefault("slices", 0)
    state.setdefault("contexts", [0] * (options.order + 1))
    state.setdefault("grams", [0] * (options.order + 1))
    if not state["done"]:
        with work.timed(state):
            _merge(work, state, runs, options, columns, adjusted, progress)
    return _counts(state, options, columns, adjusted)


def _merge(
    work: WorkFolder,
    state: dict[str, Any],
    runs: Sequence[Run],
    options: CountOptions,
    columns: Folder,
    adjusted: bool,
    progress: Callable[[int], None],
) -> None:
    numbers = range(state["slices"], len(runs[0].slices) - 1)
    make = partial(_make_slice, work, columns.path, runs, options, adjusted)
    made = in_order(columns, make, ((number,) for number in numbers))
    with (
        os_errors_of(columns.path),
        MergedColumns(columns, state, options.order, adjusted) as target,
        closing_generator(made),
    ):
        for number, sums in zip(numbers, made):
            before = state.get("unigrams")
            with work.room(target.largest(number)):  # a column of the slice exists twice until it has been appended
                target.append(number)
            unigrams = sums.unigrams + (_unigrams(columns, before, options, adjusted) if before else np.uint64(0))
            state["unigrams"] = f"unigrams{number:05}"
            (columns.path / state["unigrams"]).write_bytes(unigrams.data)
            for name in ("of_counts", "of_adjusted"):
                own = getattr(sums, name)
                state[name] = [np.add(a, b).tolist() for a, b in zip(state.get(name, [[0]] * len(own)), own)]
            state["slices"] = number + 1
            work.save()
            if before:
                (columns.path / before).unlink()
            progress(sum(run.slices[number + 1] for run in runs))
    found = int(_unigrams(columns, state["unigrams"], options, adjusted)[0].sum())
    expected = sum(run.tokens for run in runs)
    if found != expected:
        raise ValueError(
            f"{work.path / 'runs'}: expected {expected:,} tokens in all runs, got {found:,}; they are damaged: "
            "remove the work folder and start again"
        )


def _unigrams(columns: Folder, name: str, options: CountOptions, adjusted: bool) -> NDArray[np.uint64]:
    """The count of each id, uint64 [1, V]; with adjusted counts [2, V]."""
    expect_bytes(columns.path / name, 8 * options.vocab_size * (1 + adjusted))
    return np.frombuffer((columns.path / name).read_bytes(), np.uint64).reshape(-1, options.vocab_size)


def _names(order: int, adjusted: bool) -> list[tuple[int, str]]:
    """Order and name of every column."""
    return [
        (n, name) for n in range(2, order + 1) for name in COLUMNS if name not in ADJUSTED or (adjusted and n < order)
    ]


def _make_slice(
    work: WorkFolder, folder: Path, runs: Sequence[Run], options: CountOptions, adjusted: bool, number: int
) -> SliceSums:
    """Writes the columns of one slice to separate files."""
    files = {(n, name): open(folder / _part(number, n, name), "wb") for n, name in _names(options.order, adjusted)}

    def write(parts: list[SlicePart]) -> None:
        with work.room(sum(part[name].nbytes for part in parts for name in COLUMNS)):
            for (n, name), file in files.items():
                file.write(parts[n - 2][name].data)

    try:
        return slice_levels(runs, number, options, write, adjusted=adjusted)
    finally:
        for file in files.values():
            file.close()


def _part(number: int, order: int, name: str) -> str:
    return f"slice{number:05}.{order}.{name}"


class MergedColumns:
    """The columns of all orders, to which slices are appended."""

    def __init__(self, columns: Folder, state: dict[str, Any], order: int, adjusted: bool) -> None:
        self._open = ExitStack()
        self._folder, self._state = columns.path, state
        for left in self._folder.glob("slice*"):  # left by an interrupted run
            left.unlink()
        for left in self._folder.glob("unigrams*"):
            if left.name != state.get("unigrams"):
                left.unlink()
        self._files: dict[tuple[int, str], BinaryIO] = {}
        for n, name in _names(order, adjusted):
            file = self._open.enter_context(open(self._folder / f"{n}.{name}", "a+b"))
            size = _length(state, n, name) * np.dtype(COLUMNS[name]).itemsize
            file.truncate(min(size, file.tell()))  # drop what was appended after the last manifest
            expect_bytes(self._folder / f"{n}.{name}", size)
            self._files[n, name] = file

    def largest(self, number: int) -> int:
        """The size in bytes of the largest column of a slice."""
        return max(((self._folder / _part(number, n, name)).stat().st_size for n, name in self._files), default=0)

    def append(self, number: int) -> None:
        """Appends the files of a slice; indices are shifted by the entries so far."""
        contexts, grams = self._state["contexts"], self._state["grams"]
        bases = {
            "context_parent": [0, 0, *[0 if n == 2 else contexts[n - 1] for n in range(2, len(contexts))]],
            "context_end": grams,
        }
        added = {}
        for (n, name), file in self._files.items():
            path = self._folder / _part(number, n, name)
            added[n, name] = path.stat().st_size // np.dtype(COLUMNS[name]).itemsize
            if name == "context_token" and contexts[n] + added[n, name] >= NO_CONTEXT:
                raise ValueError(
                    f"counts: expected fewer than 2^32 - 1 contexts of {n - 1} tokens; "
                    "cut off rare n-grams with --min-count"
                )
            _copy(path, file, COLUMNS[name], bases[name][n] if name in bases else 0)
            path.unlink()
        for file in self._files.values():
            file.flush()
        self._state["contexts"] = [0, 0, *(contexts[n] + added[n, "context_token"] for n in range(2, len(contexts)))]
        self._state["grams"] = [0, 0, *(grams[n] + added[n, "token"] for n in range(2, len(grams)))]

    def __enter__(self) -> MergedColumns:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


def _length(state: dict[str, Any], order: int, name: str) -> int:
    """The number of entries of a column so far."""
    return state["contexts" if name.startswith("context") else "grams"][order]


def _copy(path: Path, file: BinaryIO, dtype: type[np.unsignedinteger[Any]], base: int) -> None:
    with open(path, "rb") as part:
        while block := part.read(COPY_BYTES):
            file.write((np.frombuffer(block, dtype) + dtype(base)).data if base else block)


def _counts(state: dict[str, Any], options: CountOptions, columns: Folder, adjusted: bool) -> Counts:
    found = []
    for n in range(2, options.order + 1):
        own = {}
        for name in (name for order, name in _names(options.order, adjusted) if order == n):
            expect_bytes(columns.path / f"{n}.{name}", _length(state, n, name) * np.dtype(COLUMNS[name]).itemsize)
            own[name] = columns.open(f"{n}.{name}", COLUMNS[name])
        (own["begin"],) = columns.write(
            {f"{n}.begin": np.uint64}, ((part,) for part in (np.zeros(1, np.uint64), own["context_end"]))
        )
        found.append(own)
    unigrams = _unigrams(columns, state["unigrams"], options, adjusted)
    sums = SliceSums(unigrams=unigrams, of_counts=state["of_counts"], of_adjusted=state["of_adjusted"])
    return Counts.of_columns(options, sums, found, adjusted=adjusted)
