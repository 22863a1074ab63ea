"""Counts of the n-grams of token sequences.

The documents of a text are separated by the end-of-text token, which ends one document and starts the context of
the next. It is therefore the first or the last token of an n-gram, never inside one:

    # a b # c #     counted, # being the end of text: [# a] [a b] [b #] [# c] [# a b] [a b #] [# c #]; not [b # c]

Only **windows** are counted: the window of a position is the longest n-gram that ends there, of at most N tokens.
Windows determine the counts of all orders, and sorting them once puts all orders into context order.

A **run** holds the sorted and counted windows of a part of the text. Every run is cut into the same slices, by the last
token but one of the windows. The same slice of all runs is merged independently of the others, so n-grams are made
slice by slice, in parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.short_repr import short_repr
from rescore.lm.build.windows import Packing, checked_ids
from rescore.lm.model.grams import Grams

MAX_COUNT = 1001  # counts of counts are kept for counts 1..MAX_COUNT
WINDOWS = 1 << 20  # merged at once
COLUMNS: dict[str, type[np.unsignedinteger[Any]]] = {
    "context_token": np.uint32,
    "context_parent": np.uint32,
    "context_total": np.uint64,
    "context_end": np.uint64,
    "token": np.uint32,
    "count": np.uint64,
    "context_adjusted": np.uint64,
    "adjusted": np.uint64,
}
"""What a slice adds to an order. Parents and ends count from the slice's beginning."""
ADJUSTED = ("context_adjusted", "adjusted")
"""For Kneser-Ney: empty if they are not wanted, and for order N, where they equal the plain totals and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountOptions(Packing):
    """Options of counting.

    min_counts  smallest count kept, for orders 1, 2, ..; the last holds for all higher orders. The first is 1, since
                unigrams stay, and the numbers never fall, so that the context and suffix of a kept n-gram are kept
    """

    min_counts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        Packing.__post_init__(self)
        if len(self.min_counts) > self.order:
            raise ValueError(f"min_counts: expected at most {self.order} orders, got {len(self.min_counts)}")
        if self.min_counts and (self.min_counts[0] != 1 or list(self.min_counts) != sorted(self.min_counts)):
            raise ValueError(
                f"min_counts: expected 1 for unigrams and counts that never fall after it, got {self.min_counts}"
            )

    @property
    def least(self) -> list[int]:
        """The smallest count kept for each order 1..N."""
        given = self.min_counts or (1,)
        return [given[min(n, len(given) - 1)] for n in range(self.order)]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdjustedCounts:
    """The adjusted counts of Kneser-Ney (Chen and Goodman 1998, section 3): how many distinct tokens precede an n-gram.

    N-grams of order N, and those that begin with the end of text and so have no predecessor, keep their counts. Arrays
    are as in `Counts`: of n-grams that passed the cut-offs, with totals and counts of counts of all n-grams.
    """

    count: tuple[NDArray[np.uint64], ...]
    total: tuple[NDArray[np.uint64], ...]
    of_counts: tuple[list[int], ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Counts:
    """The counts of n-grams.

    levels      n-grams of orders 1..N that passed the cut-offs (`grams.py`); order 1 holds every id, seen or not
    count       N arrays uint64 [n]
    total       N - 1 arrays uint64 [C], for the contexts of orders 2..N: the count of all tokens after it, kept or not
    of_counts   N lists: [r] is how many n-grams were seen r times, before cut-offs, r = 1..MAX_COUNT; [0] more often
                often
    bos         id of a word that is a context and never an event, or None; eos: id of the end of a sentence, or None
    min_counts  the cut-offs
    adjusted    the adjusted counts, or None
    """

    levels: tuple[Grams, ...]
    count: tuple[NDArray[np.uint64], ...]
    total: tuple[NDArray[np.uint64], ...]
    of_counts: tuple[list[int], ...]
    bos: int | None = None
    eos: int | None = None
    min_counts: tuple[int, ...] = ()
    adjusted: AdjustedCounts | None = None

    __repr__ = short_repr

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def vocab_size(self) -> int:
        return len(self.levels[0])

    @property
    def tokens(self) -> int:
        """Number of tokens counted."""
        return int(self.count[0].sum())

    @property
    def seen(self) -> list[int]:
        """Number of n-grams of each order before cut-offs."""
        return [sum(own) for own in self.of_counts]

    @classmethod
    def of_columns(
        cls,
        options: CountOptions,
        sums: SliceSums,
        columns: Sequence[Mapping[str, NDArray[Any]]],
        *,
        adjusted: bool,
    ) -> Counts:
        """The counts whose columns of orders 2..N are those of `COLUMNS` and `begin`, for all slices; and their sums.

        columns  `context_end` is not needed; `adjusted` and `context_adjusted` are absent where they equal the others
        """
        names = ("context_token", "context_parent", "begin", "token")
        unigrams = sums.unigrams
        return cls(
            levels=(
                Grams.unigrams(options.vocab_size),
                *(Grams(**{name: own[name] for name in names}) for own in columns),
            ),
            count=(unigrams[0], *(own["count"] for own in columns)),
            total=tuple(own["context_total"] for own in columns),
            of_counts=(of_counts(unigrams[0]), *sums.of_counts[2:]),
            min_counts=options.min_counts,
            adjusted=AdjustedCounts(
                count=(unigrams[1], *(own.get("adjusted", own["count"]) for own in columns)),
                total=tuple(own.get("context_adjusted", own["context_total"]) for own in columns),
                of_counts=(of_counts(unigrams[1]), *sums.of_adjusted[2:]),
            )
            if adjusted
            else None,
        )


def of_counts(count: NDArray[np.uint64]) -> list[int]:
    """Counts of counts: [r] is how many counts equal r, r = 1..MAX_COUNT; [0] how many are greater."""
    few = np.bincount(count[count <= MAX_COUNT].astype(np.int64), minlength=MAX_COUNT + 1).tolist()
    return [int((count > MAX_COUNT).sum()), *few[1:]]


class Windows(NamedTuple):
    """Windows and their counts: offsets int64 [n + 1] into tokens int32, counts int64 [n]."""

    offsets: NDArray[np.int64]
    tokens: NDArray[np.int32]
    counts: NDArray[np.int64]

    def total(self) -> int:
        """The sum of the counts, each up to 2^46, in two halves since it may exceed 63 bits."""
        return (int((self.counts >> 23).sum()) << 23) + int((self.counts & ((1 << 23) - 1)).sum())

    @classmethod
    def joined(cls, parts: Sequence[Windows]) -> Windows:
        """Concatenates the windows of all parts."""
        lengths = np.concatenate([np.diff(own.offsets) for own in parts])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        return cls(
            offsets, np.concatenate([own.tokens for own in parts]), np.concatenate([own.counts for own in parts])
        )


class Run(NamedTuple):
    """The sorted and counted windows of a part of the text.

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
    def of_tokens(cls, parts: Sequence[NDArray[Any]], options: CountOptions, starts: Sequence[int]) -> Run:
        """Counts arrays of tokens; see `_core`."""
        return cls(*_core.count_windows(parts, **options.layout, starts=starts))

    @classmethod
    def of_windows(cls, windows: Windows, options: CountOptions, starts: Sequence[int]) -> Run:
        """A run from windows counted elsewhere."""
        return cls(*_core.run_of_windows(*windows, **options.layout, starts=starts))

    def slice(self, number: int) -> bytes | tuple[str, int, int]:
        """One slice for the core: its bytes, or (file, begin, end)."""
        begin, end = self.slices[number : number + 2]
        if isinstance(self.source, bytes):
            return self.source[begin:end]
        try:
            str(self.source).encode()
        except UnicodeEncodeError:  # the core opens names in UTF-8 alone
            with open(self.source, "rb") as file:
                file.seek(begin)
                return file.read(end - begin)
        return str(self.source), begin, end


def slice_starts(sample: NDArray[Any], pieces: int) -> list[int]:
    """The first token of each slice but the first, for slices of about equal size. sample: tokens of the text."""
    ordered = np.sort(sample)
    return np.unique(ordered[np.linspace(0, len(ordered), pieces, endpoint=False)[1:].astype(int)]).tolist()


def merge_slice(runs: Sequence[Run], number: int, options: CountOptions) -> _core.RunSlices:
    """Merges one slice of the runs."""
    return _core.RunSlices([run.slice(number) for run in runs], **options.layout)


SlicePart = dict[str, NDArray[Any]]  # a part of each of these columns


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
    builder = _core.LevelBuilder(**options.layout, min_counts=options.least, most=MAX_COUNT, adjusted=adjusted)
    slices, more = merge_slice(runs, number, options), True
    while more:
        more = builder.add(slices, WINDOWS)
        if not more:
            builder.finish()
        emit([dict(zip(COLUMNS, part)) for part in builder.take()])
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
        array
        for number, sequence in enumerate(sequences)
        if len(array := _exact(checked_ids(sequence, number, vocab_size)))
    ]
    if not parts:
        raise ValueError("text to count: expected at least one token, got none")
    made: list[list[SlicePart]] = []
    sums = slice_levels([Run.of_tokens(parts, options, [])], 0, options, made.append, adjusted=adjusted)
    columns = []
    for n, parts_of_order in enumerate(zip(*made), 2):
        own = {name: np.concatenate([part[name] for part in parts_of_order]) for name in COLUMNS}
        own["begin"] = np.concatenate([np.zeros(1, np.uint64), own["context_end"]])
        columns.append({name: array for name, array in own.items() if n < order or name not in ADJUSTED})
    return Counts.of_columns(options, sums, columns, adjusted=adjusted)


def _exact(array: NDArray[np.generic]) -> NDArray[np.generic]:
    """Contiguous ids of a dtype that the core accepts: uint16, uint32 or int32."""
    exact = array.dtype in (np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.int32))
    return np.ascontiguousarray(array) if exact else array.astype(np.uint32)


def count_run(runs: Sequence[Run], number: int, options: CountOptions) -> Iterator[Windows]:
    """Yields the windows of one slice of the runs in parts."""
    slices, more = merge_slice(runs, number, options), True
    while more:
        offsets, tokens, counts, more = slices.spell(WINDOWS)
        if len(counts):
            yield Windows(offsets, tokens, counts)
