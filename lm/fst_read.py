"""Reads acceptors from OpenFst files into arrays; every count and state is checked before it is used.

OpenFst itself aborts the process if a damaged header makes it allocate too much memory.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm import fst_read as layout

MAGIC = struct.pack("<i", 2125659606)
HEADER = "<iiQqqq"  # after the names of the FST and arc types: version, flags, properties, start, states, arcs
VECTOR, CONST, CONST_ALIGNED = 2, 2, 1  # versions

# fst/properties.h
EXPANDED, MUTABLE, ACCEPTOR = 0x1, 0x2, 0x10000
EPSILONS, NO_EPSILONS = 0x5400000, 0xA800000  # on both sides, on the input side, on the output side
SORTED, NOT_SORTED = 0x50000000, 0xA0000000  # by input and by output labels
WEIGHTED, UNWEIGHTED, NOT_TOP_SORTED = 0x100000000, 0x200000000, 0x8000000000

ARC = np.dtype([("input", "<i4"), ("output", "<i4"), ("cost", "<f4"), ("next", "<i4")])
CONST_STATE = np.dtype(
    [("final", "<f4"), ("first", "<u4"), ("arcs", "<u4"), ("input_epsilons", "<u4"), ("output_epsilons", "<u4")]
)
WORD = np.dtype("<i4")  # a vector FST is a whole number of words after its header
STATE_WORDS, ARC_WORDS = 3, 4


def outside(length: int, begin: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    """A mask [length] that is false for the `size` entries from each `begin` on."""
    mask = np.ones(length, bool)
    for place in range(size):
        mask[begin + place] = False
    return mask


VERSIONS = {"vector": (layout.VECTOR,), "const": (layout.CONST, layout.CONST_ALIGNED)}
ARC_TYPES = ("standard", "log")  # whose weight is a float32 cost
INPUT_SYMBOLS, OUTPUT_SYMBOLS, ALIGNED = 1, 2, 4  # flags
SYMBOLS = 2125658996  # magic number of a symbol table
BOUNDARY = 16  # bytes of alignment


class Acceptor(NamedTuple):
    """An acceptor of S states and A arcs.

    start  its start state, in [0, S)
    first  int64 [S + 1], the arcs of state s are first[s] .. first[s + 1] - 1
    arcs   ARC [A]: equal labels of input and output, `next` in [0, S), costs neither NaN nor -inf
    final  float32 [S], final costs, +inf if a state is not final
    """

    start: int
    first: NDArray[np.int64]
    arcs: NDArray[Any]
    final: NDArray[np.float32]


def read(data: NDArray[np.uint8]) -> Acceptor:
    """The acceptor in the bytes of a file; symbol tables are skipped.

    ValueError unless the file is one complete vector or const FST of standard or log arcs.
    """
    if data[: len(MAGIC)].tobytes() != MAGIC:
        raise ValueError(f"expected an OpenFst file, which begins with {MAGIC!r}, got {data[: len(MAGIC)].tobytes()!r}")
    cursor = _Cursor(data, len(MAGIC))
    kind, arc_type = cursor.text("the type of the FST"), cursor.text("the type of its arcs")
    if kind not in VERSIONS or arc_type not in ARC_TYPES:
        raise ValueError(
            f"expected a vector or const FST of standard arcs, got {kind[:40]!r} of {arc_type[:40]!r}; convert it with "
            "fstconvert --fst_type=vector or fstmap --map_type=to_standard"
        )
    version, flags, _, start, states, arcs = cursor.take(layout.HEADER, "a header")
    if version not in VERSIONS[kind]:
        raise ValueError(f"expected a {kind} FST of version {VERSIONS[kind][0]}, got {version}")
    for flag in (INPUT_SYMBOLS, OUTPUT_SYMBOLS):
        if flags & flag:
            cursor.skip_symbols()
    if kind == "vector":
        found = Acceptor(start, *_read_vector(data[cursor.at :], states))
    else:
        aligned = bool(flags & ALIGNED) or version == layout.CONST_ALIGNED
        found = Acceptor(start, *_read_const(cursor, states, arcs, aligned))
    _check(found)
    return found


class _Cursor:
    """A position in a file."""

    def __init__(self, data: NDArray[np.uint8], at: int) -> None:
        self.data, self.at = data, at

    def bytes(self, size: int, what: str) -> NDArray[np.uint8]:
        """The next bytes."""
        left = len(self.data) - self.at
        if not 0 <= size <= left:
            raise ValueError(
                f"byte {self.at}: expected {what} of {size} bytes, got {left} to the end; it is truncated or damaged"
            )
        self.at += size
        return self.data[self.at - size : self.at]

    def take(self, numbers: str, what: str) -> tuple[Any, ...]:
        return struct.unpack(numbers, self.bytes(struct.calcsize(numbers), what).tobytes())

    def text(self, what: str) -> str:
        (size,) = self.take("<i", what)
        return self.bytes(size, what).tobytes().decode("utf-8", "backslashreplace")

    def skip_symbols(self) -> None:
        """symbol-table.h: magic, name, next free label, number of symbols; each symbol with its label."""
        at, (magic,) = self.at, self.take("<i", "a symbol table")
        if magic != SYMBOLS:
            raise ValueError(f"byte {at}: expected a symbol table, which begins with {SYMBOLS}, got {magic}")
        self.text("the name of a symbol table")
        _, size = self.take("<qq", "a symbol table")
        for _ in range(size):
            self.text("a symbol")
            self.take("<q", "the label of a symbol")


Parts = tuple[NDArray[np.int64], NDArray[Any], NDArray[np.float32]]


def _read_vector(body: NDArray[np.uint8], states: int) -> Parts:
    """`first`, `arcs` and `final` of a vector FST. states: -1 if the header does not give their number."""
    if len(body) % WORD.itemsize or not -1 <= states <= len(body) // (STATE_WORDS * WORD.itemsize):
        raise ValueError(
            f"header: expected {states} states within the {len(body)} bytes to the end; it is truncated or damaged"
        )
    words = body.view(WORD)
    heads = np.fromiter(_heads(words, states), np.int64, states)
    first = np.zeros(len(heads) + 1, np.int64)
    np.cumsum(words[heads + 1], out=first[1:])
    if left := len(words) - STATE_WORDS * len(heads) - ARC_WORDS * int(first[-1]):
        raise ValueError(f"expected the file to end after {len(heads)} states, got {WORD.itemsize * left} more bytes")
    return first, words[outside(len(words), heads, STATE_WORDS)].view(ARC), words[heads].view(np.float32)


def _heads(words: NDArray[np.int32], states: int) -> Iterator[int]:
    """Yields where each state begins; the number of its arcs gives where the next one does."""
    view, at, end = words.view(np.uint8).data.cast("i"), 0, len(words)
    for state in itertools.count() if states < 0 else range(states):
        if at == end and states < 0:
            return
        if at + STATE_WORDS > end:
            raise ValueError(f"state {state}: the file ends before it; it is truncated or damaged")
        low, high = view[at + 1], view[at + 2]
        room = (end - at - STATE_WORDS) // ARC_WORDS
        if high or not 0 <= low <= room:
            raise ValueError(
                f"state {state}: expected at most the {room} arcs that the file has room for, got "
                f"{(high << 32) + low % 2**32}; it is truncated or damaged"
            )
        yield at
        at += STATE_WORDS + ARC_WORDS * low


def _read_const(cursor: _Cursor, states: int, arcs: int, aligned: bool) -> Parts:
    """`first`, `arcs` (a view of the file) and `final` of a const FST."""
    if aligned:
        cursor.bytes(-cursor.at % BOUNDARY, "padding")
    table = cursor.bytes(states * CONST_STATE.itemsize, f"{states} states").view(CONST_STATE)
    if aligned:
        cursor.bytes(-cursor.at % BOUNDARY, "padding")
    entries = cursor.bytes(arcs * ARC.itemsize, f"{arcs} arcs").view(ARC)
    if left := len(cursor.data) - cursor.at:
        raise ValueError(f"expected the file to end after {arcs} arcs, got {left} more bytes")
    first = np.zeros(states + 1, np.int64)
    np.cumsum(table["arcs"], out=first[1:])
    wrong = np.append(table["first"], arcs) != first
    if wrong.any():
        state = int(wrong.argmax())
        raise ValueError(f"state {state}: expected its arcs from number {first[state]} on; the file is damaged")
    return first, entries, np.ascontiguousarray(table["final"])


def _check(found: Acceptor) -> None:
    arcs, states = found.arcs, len(found.final)
    if not states:
        raise ValueError("expected an automaton with a start state, got one without states")
    if not 0 <= found.start < states:
        raise ValueError(f"expected a start state below {states}, got {found.start}")
    refuse_arcs(found, arcs["input"] != arcs["output"], "an acceptor, got labels {input}:{output}")
    refuse_arcs(found, (arcs["next"] < 0) | (arcs["next"] >= states), f"a next state below {states}, got {{next}}")
    refuse_arcs(found, ~(arcs["cost"] > -np.inf), "a cost, got {cost}")
    if (wrong := ~(found.final > -np.inf)).any():
        state = int(wrong.argmax())
        raise ValueError(f"state {state}: expected a final cost, got {found.final[state]}")


def refuse_arcs(found: Acceptor, wrong: NDArray[np.bool_], expected: str) -> None:
    """ValueError that names the first wrong arc and its state; {input}, {output}, {cost} and {next} are the arc's."""
    if wrong.any():
        number = int(wrong.argmax())
        state = int(np.searchsorted(found.first, number, "right")) - 1
        arc = dict(zip(ARC.names or (), found.arcs[number].tolist()))
        raise ValueError(f"state {state}, arc {number - found.first[state]}: expected {expected.format(**arc)}")
