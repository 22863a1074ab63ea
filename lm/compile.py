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
from rescore.lm.columns import Columns, Memory, blocks, in_order
from rescore.lm.grams import NO_CONTEXT, NOTHING, Grams
from rescore.lm.tables import MAX_COST, ROUNDING, Tables, links


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
    columns = columns or Memory()
    levels = tables.levels
    first = np.cumsum([0, *(level.contexts for level in levels)])  # the first state of each context length
    if first[-1] >= NO_CONTEXT:
        raise ValueError(f"model: expected fewer than 2^32 - 1 contexts, got {first[-1]}; prune the model")
    arcs = np.cumsum([0, *map(len, levels)])
    token = np.uint16 if tables.vocab_size <= 1 << 16 else np.uint32

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
        arc_token=joined("arc_token", token, (level.token for level in levels)),
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
        native, below = level.native, levels[max(n - 1, 0)].native
        link, shorter, base = linked[n], found[-1] if found else NOTHING, int(first[min(n + 1, len(levels))])

        def part(a: int, b: int, native=native, below=below, link=link, shorter=shorter, base=base):
            return (_core.next_states(native, below, link, shorter, base, a, b),)

        found += columns.write({f"{n + 1}.next": np.uint32}, in_order(columns, part, level.ranges()))
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
    """The tables of an automaton. ValueError unless it has the layout of `compile_tables`."""
    begin = arrays.arc_begin.astype(np.int64)
    vocab_size = int(begin[1])
    _check_bounds(arrays, begin, vocab_size)
    check_costs(arrays)
    levels, first = [Grams.unigrams(vocab_size)], [0, 1]
    for n in range(2, order + 1):
        # The contexts of this order back off to those of the order below, and are reached from its n-grams.
        last = int(np.searchsorted(arrays.backoff_state, first[-1])) if n < order else len(begin) - 1
        levels.append(_level(arrays, begin, levels[-1], first[-2], first[-1], max(last, first[-1])))
        first.append(max(last, first[-1]))
    bounds = [0, *(int(begin[at]) for at in first[1:])]
    tables = Tables(
        levels=tuple(levels),
        cost=tuple(arrays.arc_cost[a:b].astype(np.float64) for a, b in zip(bounds, bounds[1:])),
        backoff=tuple(arrays.backoff_cost[a:b].astype(np.float64) for a, b in zip(first[1:], first[2:])),
    )
    for name, mine, given in zip(Arrays._fields, compile_tables(tables), arrays):
        if not np.array_equal(mine, given):
            raise ValueError(f"automaton: {name}: expected a closed backoff model in context order")
    return tables


def _check_bounds(arrays: Arrays, begin: NDArray[np.int64], vocab_size: int) -> None:
    """Checks what the native core relies on: the arrays may come from an unverified file."""
    wrong = {
        "arc_begin": (np.diff(begin) < 0).any() or begin[0] != 0 or begin[-1] != len(arrays.arc_token),
        "arc_token": (arrays.arc_token >= vocab_size).any(),
        "backoff_state": (arrays.backoff_state[1:] < arrays.backoff_state[:-1]).any()
        or (arrays.backoff_state[1:] >= np.arange(1, len(begin) - 1)).any(),
    }
    if name := next((name for name, is_wrong in wrong.items() if is_wrong), None):
        raise ValueError(f"automaton: {name}: expected a closed backoff model in context order")


def _level(arrays: Arrays, begin: NDArray[np.int64], below: Grams, parents: int, first: int, last: int) -> Grams:
    """The order whose contexts are the states first .. last - 1; those of the order below are parents .. first - 1."""
    reached = arrays.arc_next[begin[parents] : begin[first]].astype(np.int64) - first
    gram = np.flatnonzero((reached >= 0) & (reached < last - first))
    if last > first and arrays.backoff_state[last - 1] >= first:
        raise ValueError("automaton: backoff_state: expected a closed backoff model in context order")
    if len(gram) != last - first or len(np.unique(reached[gram])) != len(gram):
        raise ValueError(
            f"automaton: expected one n-gram of the order below to lead to each of the states {first}..{last - 1}"
        )
    token = np.empty(last - first, np.uint32)
    oldest = below.token if not len(below.context_token) else below.context_token[below.context()]
    token[reached[gram]] = oldest[gram]
    return Grams(
        context_token=token,
        context_parent=arrays.backoff_state[first:last] - np.uint32(parents),
        begin=(begin[first : last + 1] - begin[first]).astype(np.uint64),
        token=arrays.arc_token[begin[first] : begin[last]].astype(np.uint32),
    )
