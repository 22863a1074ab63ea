"""Compiles tables to the six arrays of the automaton, and back.

The states are the contexts: the root, then those of order 2, of order 3, .., each in context order. The arcs, state by
state, are therefore the n-grams in the order of the tables, and nothing has to be sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rescore import _core
from rescore.lm.model.columns import Columns, blocks, over_contexts
from rescore.lm.model.grams import NO_CONTEXT, NOTHING, Grams, token_dtype
from rescore.lm.model.tables import MAX_COST, NEVER, ROUNDING, Tables, links

BINS = 256
_STEPS = 1 << 16  # of the histogram, about 0.0003 nats each


class Arrays(NamedTuple):
    """The automaton of S states and A arcs; `NGram.arrays` describes each array."""

    arc_begin: NDArray[np.uint64]
    arc_token: NDArray[np.uint16] | NDArray[np.uint32]
    arc_cost: NDArray[np.float32]
    arc_next: NDArray[np.uint32]
    backoff_state: NDArray[np.uint32]
    backoff_cost: NDArray[np.float32]


def compile_tables(tables: Tables, columns: Columns | None = None) -> Arrays:
    """The automaton of a model."""
    columns = columns or Columns()
    levels = tables.levels
    first = np.cumsum([0, *(level.contexts for level in levels)])  # the first state of each context length
    if first[-1] >= NO_CONTEXT:
        raise ValueError(f"model: expected fewer than 2^32 - 1 contexts, got {first[-1]}; prune the model")
    arcs = np.cumsum([0, *map(len, levels)])

    def joined(
        name: str, dtype: DTypeLike, arrays: Iterable[NDArray[Any]], bases: Iterable[int] = repeat(0)
    ) -> NDArray[Any]:
        """Concatenates the arrays, each with its base added."""
        parts = (
            (block + block.dtype.type(base) if base else block,)
            for array, base in zip(arrays, bases)
            for block in blocks(columns, array)
        )
        return columns.write({name: dtype}, parts)[0]

    return Arrays(
        arc_begin=joined(
            "arc_begin", np.uint64, [*(level.begin[:-1] for level in levels), np.zeros(1, np.uint64)], arcs.tolist()
        ),
        arc_token=joined("arc_token", token_dtype(tables.vocab_size), (level.token for level in levels)),
        arc_cost=joined("arc_cost", np.float32, tables.cost),
        arc_next=joined("arc_next", np.uint32, next_states(levels, first, columns)),
        backoff_state=joined(
            "backoff_state",
            np.uint32,
            [np.zeros(1, np.uint32), *(level.context_parent for level in levels[1:])],
            [0, *first.tolist()],
        ),
        backoff_cost=joined("backoff_cost", np.float32, [np.zeros(1), *tables.backoff]),
    )


def next_states(levels: tuple[Grams, ...], first: NDArray[np.int64], columns: Columns) -> list[NDArray[np.uint32]]:
    """The state after each n-gram, its longest suffix that is a context: uint32 [n] per order."""
    found: list[NDArray[np.uint32]] = []
    linked = [*links(levels, columns), NOTHING]
    for n, level in enumerate(levels):
        link, shorter, base = linked[n], found[-1] if found else NOTHING, int(first[min(n + 1, len(levels))])
        given = (levels[max(n - 1, 0)].native, link, shorter, base)
        found += over_contexts(columns, {f"{n + 1}.next": np.uint32}, _core.next_states, level, *given)
    return found


def check_costs(arrays: Arrays) -> None:
    """ValueError unless costs are those of probabilities in (0, 1], and none nor a backoff cost is beyond MAX_COST.

    Files of all formats hold such models, and sums of their costs are finite.
    """
    for name, cost, low in (("arc_cost", arrays.arc_cost, -ROUNDING), ("backoff_cost", arrays.backoff_cost, -MAX_COST)):
        if not (cost.min() >= low and cost.max() <= MAX_COST):  # NaN fails too
            wrong = int((~((cost >= low) & (cost <= MAX_COST))).argmax())
            raise ValueError(f"{name}[{wrong}]: expected a cost from {round(low)} to {MAX_COST:.0f}, got {cost[wrong]}")


def decompile(arrays: Arrays, order: int) -> Tables:
    """The tables of an automaton that is closed and in canonical order (`_core.Automaton.check`)."""
    check_costs(arrays)
    begin = arrays.arc_begin.astype(np.int64)
    levels, first = [Grams.unigrams(int(begin[1]))], [0, 1]
    for n in range(2, order + 1):
        # The contexts of this order back off to those of the order below, and are reached from its n-grams.
        last = int(np.searchsorted(arrays.backoff_state, first[-1])) if n < order else len(begin) - 1
        levels.append(_level(arrays, begin, levels[-1], first[-2], first[-1], max(last, first[-1])))
        first.append(max(last, first[-1]))
    bounds = [0, *(int(begin[at]) for at in first[1:])]
    return Tables(
        levels=tuple(levels),
        cost=tuple(arrays.arc_cost[a:b].astype(np.float64) for a, b in zip(bounds, bounds[1:])),
        backoff=tuple(arrays.backoff_cost[a:b].astype(np.float64) for a, b in zip(first[1:], first[2:])),
    )


def _level(arrays: Arrays, begin: NDArray[np.int64], below: Grams, parents: int, first: int, last: int) -> Grams:
    """The order whose contexts are the states first .. last - 1; those of the order below are parents .. first - 1."""
    reached = arrays.arc_next[begin[parents] : begin[first]].astype(np.int64) - first
    gram = np.flatnonzero((reached >= 0) & (reached < last - first))
    token = np.empty(last - first, np.uint32)
    oldest = below.token if not len(below.context_token) else below.context_token[below.context()]
    token[reached[gram]] = oldest[gram]
    return Grams(
        context_token=token,
        context_parent=arrays.backoff_state[first:last] - np.uint32(parents),
        begin=(begin[first : last + 1] - begin[first]).astype(np.uint64),
        token=arrays.arc_token[begin[first] : begin[last]].astype(np.uint32),
    )


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
    """An automaton of order N over V ids. lm/ngram-format.md describes each array.

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
        found = _core.encode(
            *arrays,
            order=order,
            vocab_size=vocab_size,
            next_bits=next_bits,
            choose_book=(lambda cost: codebook(cost, BINS)) if quantise else _core.exact_book,
        )
        token = found[1].view(np.uint16) if vocab_size <= 1 << 16 else found[1]
        root_cost = np.ascontiguousarray(arrays.arc_cost[:vocab_size])
        return cls(found[0].reshape(order, 6), root_cost, token, *found[2:], next_bits)

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
