"""The compact arrays of an automaton, which an `.ngram` file holds and the core reads as they are."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.compile import Arrays
from rescore.lm.quantise import BINS, codebook

Floats = NDArray[np.float32]


class Compact(NamedTuple):
    """An automaton of order N over V ids; docs/ngram-format.md says what is in each array.

    sizes          uint64 [N, 6]: n-grams of each order n, bits and entries of the column of their costs; contexts of
                   length n - 1, bits and entries of their column
    root_cost      float32 [V]
    arc_token      uint16 [A - V] if V <= 65536, else uint8 [3 (A - V)]
    arc_next       uint16 or uint8 [A - V]
    arc_cost       uint8: the packed columns, with the books of their costs in arc_book float32; backoff_* likewise
    first_state    uint32 [(N - 1) (V + 1)]
    jumps          uint32
    arc_begin      uint64, Elias-Fano; backoff_state likewise
    next_bits      how many bits of an entry of arc_next are of the state
    """

    sizes: NDArray[np.uint64]
    root_cost: Floats
    arc_token: NDArray[np.uint16] | NDArray[np.uint8]
    arc_next: NDArray[np.uint16] | NDArray[np.uint8]
    arc_cost: NDArray[np.uint8]
    arc_book: Floats
    backoff_cost: NDArray[np.uint8]
    backoff_book: Floats
    first_state: NDArray[np.uint32]
    jumps: NDArray[np.uint32]
    arc_begin: NDArray[np.uint64]
    backoff_state: NDArray[np.uint64]
    next_bits: int

    @classmethod
    def from_arrays(cls, arrays: Arrays, *, order: int, vocab_size: int, quantise: bool = False) -> Compact:
        """The compact form of a model's arrays, exact, or with costs rounded to 256 values for each order.

        ValueError, naming the entry, unless states and arcs are those of a closed model in canonical order.
        """
        width = 1 if quantise else 2
        next_bits = 8 * width - (order - 1).bit_length()
        states, arcs, token, after, first_state, jumps, arc_begin, backoff_state = _core.encode_structure(
            arrays.arc_begin, arrays.arc_token, arrays.arc_next, arrays.backoff_state,
            order=order, vocab_size=vocab_size, code_bytes=width, next_bits=next_bits,
        )  # fmt: skip
        if len(arrays.arc_cost) != arcs.sum() or len(arrays.backoff_cost) != states.sum():
            raise ValueError(
                f"costs: expected {arcs.sum()} of arcs and {states.sum()} of states, "
                f"got {len(arrays.arc_cost)} and {len(arrays.backoff_cost)}"
            )
        costs = _columns(arrays.arc_cost, arcs, quantise)
        paid = _columns(arrays.backoff_cost, states, quantise)
        return cls(
            sizes=np.column_stack([arcs, costs[0], states, paid[0]]).astype(np.uint64),
            root_cost=np.ascontiguousarray(arrays.arc_cost[:vocab_size]),
            arc_token=token.view(np.uint16) if vocab_size <= 1 << 16 else token,
            arc_next=after if quantise else after.view(np.uint16),
            arc_cost=costs[1],
            arc_book=costs[2],
            backoff_cost=paid[1],
            backoff_book=paid[2],
            first_state=first_state,
            jumps=jumps,
            arc_begin=arc_begin,
            backoff_state=backoff_state,
            next_bits=next_bits,
        )

    @property
    def sections(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {name: array for name, array in self._asdict().items() if name != "next_bits"}

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.sections.values())


def _columns(
    cost: Floats, number: NDArray[np.uint64], quantise: bool
) -> tuple[NDArray[np.int64], NDArray[np.uint8], Floats]:
    """Bits and entries [N, 2] of the columns of every order but the first, which has none; the columns; the books."""
    forms, data, books = [(32, 0)], [], []
    ends = np.cumsum(number).tolist()
    for begin, end in zip(ends, ends[1:]):
        part = cost[begin:end]
        chosen = codebook(part, BINS) if quantise and len(part) else np.zeros(0, np.float32)
        bits, packed, book = _core.encode_costs(part, chosen)
        forms.append((bits, len(book)))
        data.append(packed)
        books.append(book)
    return np.array(forms), _join(data, np.uint8), _join(books, np.float32)


def _join(parts: list[NDArray[Any]], dtype: type[Any]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype), *parts])
