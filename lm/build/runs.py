"""Runs: the sorted and counted windows of a part of the text; and the n-grams of every order from them.

Every run is cut into the same slices, by the last token but one of the windows. The same slice of all runs is merged
independently of the others, so n-grams are made slice by slice, in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lm.build.counts import MAX_COUNT, AdjustedCounts, CountOptions, Counts, of_counts
from rescore.lm.build.windows import checked_ids
from rescore.lm.model.grams import Grams

WINDOWS = 1 << 20  # merged at once
Columns = tuple[
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint64],
    NDArray[np.uint64],
    NDArray[np.uint32],
    NDArray[np.uint64],
    NDArray[np.uint64],
    NDArray[np.uint64],
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run.

    source   its bytes, or the file that holds them
    slices   the byte where each slice begins, and the end: [number of slices + 1]
    windows  number of distinct windows
    tokens   number of tokens counted
    """

    source: bytes | Path
    slices: list[int]
    windows: int
    tokens: int

    @classmethod
    def of_tokens(
        cls, parts: Sequence[tuple[NDArray[Any], int, int]], options: CountOptions, starts: Sequence[int]
    ) -> Run:
        """Counts positions begin .. stop - 1 of arrays of tokens, given as (array, begin, stop); see `_core`."""
        source, slices, windows, tokens = _core.count_windows(
            parts, order=options.order, vocab_size=options.vocab_size, end_of_text=options.end_of_text, starts=starts
        )
        return cls(source=source, slices=slices, windows=windows, tokens=tokens)

    @classmethod
    def of_windows(
        cls,
        offsets: NDArray[np.int64],
        tokens: NDArray[np.int32],
        counts: NDArray[np.int64],
        options: CountOptions,
        starts: Sequence[int],
    ) -> Run:
        """A run from windows counted elsewhere: offsets [n + 1] into tokens, counts [n]."""
        source, slices, windows, total = _core.run_of_windows(
            offsets,
            tokens,
            counts,
            order=options.order,
            vocab_size=options.vocab_size,
            end_of_text=options.end_of_text,
            starts=starts,
        )
        return cls(source=source, slices=slices, windows=windows, tokens=total)

    def slice(self, number: int) -> bytes | tuple[str, int, int]:
        """One slice for the core: its bytes, or (file, begin, end)."""
        begin, end = self.slices[number : number + 2]
        return self.source[begin:end] if isinstance(self.source, bytes) else (str(self.source), begin, end)


def slice_starts(sample: NDArray[Any], pieces: int) -> list[int]:
    """The first token of each slice but the first, for slices of about equal size. sample: tokens of the text."""
    ordered = np.sort(sample)
    return np.unique(ordered[np.linspace(0, len(ordered), pieces, endpoint=False)[1:].astype(int)]).tolist()


def merged(runs: Sequence[Run], number: int, options: CountOptions) -> _core.RunSlices:
    """Merges one slice of the runs."""
    return _core.RunSlices(
        [run.slice(number) for run in runs],
        order=options.order,
        vocab_size=options.vocab_size,
        end_of_text=options.end_of_text,
    )


@dataclass(slots=True, kw_only=True)
class SlicePart:
    """A part of what a slice adds to one order; parents and ends count from the slice's beginning.

    context_adjusted and adjusted are the adjusted totals and counts; empty if they are not wanted, and for order N,
    where they equal the plain ones.
    """

    context_token: NDArray[np.uint32]
    context_parent: NDArray[np.uint32]
    context_total: NDArray[np.uint64]
    context_end: NDArray[np.uint64]
    token: NDArray[np.uint32]
    count: NDArray[np.uint64]
    context_adjusted: NDArray[np.uint64]
    adjusted: NDArray[np.uint64]

    @classmethod
    def of(cls, part: Columns) -> SlicePart:
        """The part from the core's tuple."""
        context_token, context_parent, context_total, context_end, token, count, context_adjusted, adjusted = part
        return cls(
            context_token=context_token,
            context_parent=context_parent,
            context_total=context_total,
            context_end=context_end,
            token=token,
            count=count,
            context_adjusted=context_adjusted,
            adjusted=adjusted,
        )


@dataclass(slots=True, kw_only=True)
class SliceSums:
    """What a slice adds to the unigram counts, and to the counts of counts 0..MAX_COUNT of each order 0..N.

    unigrams [1, V], or [2, V] with adjusted counts second. of_adjusted: empty lists without adjusted counts.
    """

    unigrams: NDArray[np.uint64]
    of_counts: list[list[int]]
    of_adjusted: list[list[int]]


def slice_levels(
    runs: Sequence[Run],
    number: int,
    options: CountOptions,
    emit: Callable[[list[SlicePart]], None],
    *,
    adjusted: bool = False,
) -> SliceSums:
    """Makes the n-grams of one slice. Each call of `emit` gets a part for every order 2..N."""
    builder = _core.LevelBuilder(
        order=options.order,
        vocab_size=options.vocab_size,
        min_counts=options.least,
        end_of_text=options.end_of_text,
        most=MAX_COUNT,
        adjusted=adjusted,
    )
    slices, more = merged(runs, number, options), True
    while more:
        more = builder.add(slices, WINDOWS)
        if not more:
            builder.finish()
        emit([SlicePart.of(part) for part in builder.take()])
    unigrams = [builder.unigrams(), *([builder.adjusted_unigrams()] if adjusted else [])]
    return SliceSums(unigrams=np.stack(unigrams), of_counts=builder.of_counts, of_adjusted=builder.of_adjusted)


def count(
    sequences: Iterable[ArrayLike],
    *,
    order: int,
    vocab_size: int,
    end_of_text: int,
    min_counts: tuple[int, ...] = (),
    adjusted: bool = False,
) -> Counts:
    """Counts the n-grams of orders 1..`order` of the sequences, in memory. See `CountOptions` for the other options.

    sequences  integer arrays [n] of ids in [0, V), each of whole documents: an end-of-text is added before the first
               and after the last token of a sequence if it is missing. The one before the very first document is a
               context, not an event.
    adjusted   also compute the adjusted counts of Kneser-Ney
    """
    options = CountOptions(order=order, vocab_size=vocab_size, end_of_text=end_of_text, min_counts=min_counts)
    parts = [
        (array, 0, len(array))
        for number, sequence in enumerate(sequences)
        if len(array := _exact(checked_ids(sequence, number, vocab_size)))
    ]
    if not parts:
        raise ValueError("text to count: expected at least one token, got none")
    made: list[list[SlicePart]] = []
    sums = slice_levels([Run.of_tokens(parts, options, [])], 0, options, made.append, adjusted=adjusted)
    levels, counts, total = [Grams.unigrams(vocab_size)], [sums.unigrams[0]], []
    adjusted_counts, adjusted_total = [sums.unigrams[-1]], []
    for n, parts_of_order in enumerate(zip(*made), 2):
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts_of_order]) for name in SlicePart.__slots__
        }
        begin = np.concatenate([np.zeros(1, np.uint64), columns["context_end"]])
        levels.append(
            Grams(
                context_token=columns["context_token"],
                context_parent=columns["context_parent"],
                begin=begin,
                token=columns["token"],
            )
        )
        counts.append(columns["count"])
        total.append(columns["context_total"])
        adjusted_counts.append(columns["adjusted" if n < order else "count"])
        adjusted_total.append(columns["context_adjusted" if n < order else "context_total"])
    return Counts(
        levels=tuple(levels),
        count=tuple(counts),
        total=tuple(total),
        of_counts=(of_counts(counts[0]), *sums.of_counts[2:]),
        min_counts=min_counts,
        adjusted=AdjustedCounts(
            count=tuple(adjusted_counts),
            total=tuple(adjusted_total),
            of_counts=(of_counts(adjusted_counts[0]), *sums.of_adjusted[2:]),
        )
        if adjusted
        else None,
    )


def _exact(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Contiguous ids of a dtype that the core accepts: uint16, uint32 or int32."""
    exact = array.dtype in (np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.int32))
    return np.ascontiguousarray(array) if exact else array.astype(np.uint32)


def counted(
    runs: Sequence[Run], number: int, options: CountOptions
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]]:
    """Yields the windows of one slice of the runs in parts: offsets [n + 1], tokens, and counts [n]."""
    slices, more = merged(runs, number, options), True
    while more:
        offsets, tokens, counts, more = slices.spell(WINDOWS)
        if len(counts):
            yield offsets, tokens, counts
