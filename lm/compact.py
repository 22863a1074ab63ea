"""The compact arrays of an automaton, as stored in an `.ngram` file and read by the core."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.compile import Arrays, check_costs
from rescore.lm.tables import NEVER

BINS = 256
_STEPS = 1 << 16  # of the histogram, about 0.0003 nats each


def codebook(cost: NDArray[np.float32], bins: int) -> NDArray[np.float32]:
    """The codebook of costs [n]: at most `bins` values, float32, ascending and distinct; 0 is kept if it occurs.

    Half of the values are evenly spaced, so that no cost is off by more than 1/256 of the range. The density of the
    others is proportional to the cube root of the density of the costs, which for many bins minimises the mean squared
    error in nats (Panter and Dite, Quantization distortion in pulse-count modulation, 1951). Bins of equal population
    would leave errors of several nats for unlikely tokens, whose costs are rare.
    """
    zero = bool((cost == 0).any())
    cost = cost[cost != 0]
    if not len(cost):
        return np.zeros(1, np.float32)
    found = np.unique(cost[:: max(1, len(cost) >> 16)])
    if len(found) <= bins - zero and len(found := np.unique(cost)) <= bins - zero:
        return np.union1d(found, np.zeros(int(zero), np.float32)).astype(np.float32)
    low, high = float(cost.min()), float(cost.max())
    count, edge = np.histogram(cost, _STEPS, (low, high))
    smooth = np.convolve(count, np.full(129, 1 / 129), mode="same")  # since costs cluster
    dense = np.cbrt(np.maximum(smooth, 0))
    place = np.cumsum(dense / dense.sum() + 1 / _STEPS) / 2
    which = np.minimum(place * (bins - zero), bins - zero - 1).astype(np.int64)
    middle = (edge[1:] + edge[:-1]) / 2
    weight = np.bincount(which, count, bins - zero)
    book = np.bincount(which, count * middle, bins - zero)[weight > 0] / weight[weight > 0]
    return np.unique(np.append(book, np.zeros(int(zero))).astype(np.float32))


Floats = NDArray[np.float32]


class Compact(NamedTuple):
    """An automaton of order N over V ids. docs/reference/ngram-format.md describes each array.

    sizes          uint64 [N, 6]: for each order n its n-grams, bytes of a cost, entries of the codebook of costs;
                   contexts of length n - 1, bytes of a backoff cost, entries of the codebook of backoff costs
    root_cost      float32 [V]
    arc_token      uint16 [A - V] if V <= 65536, else uint8 [3 (A - V)]
    arcs           uint8: a record (cost and code) for each of the A - V arcs; arc_book float32: codebooks of costs
    contexts       uint8: blocks of 64 bytes; backoff_book float32: codebooks of backoff costs; wide uint32: long blocks
    first_state    uint32 [(N - 1) (V + 1)]
    jumps          uint32
    backoff_state  uint64, Elias-Fano
    next_bits      number of low bits of a state in a code
    """

    sizes: NDArray[np.uint64]
    root_cost: Floats
    arc_token: NDArray[np.uint16] | NDArray[np.uint8]
    arcs: NDArray[np.uint8]
    arc_book: Floats
    contexts: NDArray[np.uint8]
    backoff_book: Floats
    wide: NDArray[np.uint32]
    first_state: NDArray[np.uint32]
    jumps: NDArray[np.uint32]
    backoff_state: NDArray[np.uint64]
    next_bits: int

    @classmethod
    def from_arrays(cls, arrays: Arrays, *, order: int, vocab_size: int, quantise: bool = False) -> Compact:
        """Compacts a model's arrays, exactly or with costs quantised to 256 values per order.

        ValueError names the entry unless the arrays are a closed model in canonical order, with the costs of
        `check_costs`.
        """
        check_costs(arrays)
        next_bits = 7 if quantise else 15  # a code is one or two bytes: these bits and a flag
        sizes, token, arcs, arc_book, contexts, backoff_book, wide, first_state, jumps, backoff_state = _core.encode(
            *arrays,
            order=order,
            vocab_size=vocab_size,
            next_bits=next_bits,
            choose_book=(lambda cost: codebook(cost, BINS)) if quantise else _core.exact_book,
        )
        return cls(
            sizes=sizes.reshape(order, 6),
            root_cost=np.ascontiguousarray(arrays.arc_cost[:vocab_size]),
            arc_token=token.view(np.uint16) if vocab_size <= 1 << 16 else token,
            arcs=arcs,
            arc_book=arc_book,
            contexts=contexts,
            backoff_book=backoff_book,
            wide=wide,
            first_state=first_state,
            jumps=jumps,
            backoff_state=backoff_state,
            next_bits=next_bits,
        )

    def widened(self, vocab_size: int) -> Compact:
        """The same automaton over more ids: impossible at the root, and in no context."""
        sizes, order, known = self.sizes.copy(), len(self.sizes), len(self.root_cost)
        sizes[0, 0] = vocab_size
        first = self.first_state.reshape(order - 1, known + 1)
        token = self.arc_token
        if token.dtype == np.uint16 and vocab_size > 1 << 16:
            token = np.pad(token.view(np.uint8).reshape(-1, 2), ((0, 0), (0, 1))).reshape(-1)
        return self._replace(
            sizes=sizes,
            root_cost=np.pad(self.root_cost, (0, vocab_size - known), constant_values=NEVER),
            arc_token=token,
            first_state=np.pad(first, ((0, 0), (0, vocab_size - known)), mode="edge").reshape(-1),
        )

    @property
    def sections(self) -> dict[str, NDArray[Any]]:
        """The arrays by name."""
        return {name: array for name, array in self._asdict().items() if name != "next_bits"}

    @property
    def bytes(self) -> int:
        return sum(array.nbytes for array in self.sections.values())
