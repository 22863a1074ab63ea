"""Tables to the six arrays of the automaton, and back.

A state is a context that has n-grams of its own or a backoff weight other than 1; states are ordered by length, then
lexicographically, the root first. So the arcs of all states, state by state, are the n-grams of order 1, of order 2, ..,
in the order of the tables, and nothing has to be sorted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import Grams
from rescore.lm.tables import Tables


class Arrays(NamedTuple):
    """The automaton of S states and A arcs; `NGram` says what each array means."""

    arc_begin: NDArray[np.uint64]
    arc_token: NDArray[np.uint16] | NDArray[np.uint32]
    arc_cost: NDArray[np.float32]
    arc_next: NDArray[np.uint32]
    backoff_state: NDArray[np.uint32]
    backoff_cost: NDArray[np.float32]


def compile_tables(tables: Tables) -> Arrays:
    """The automaton of a model."""
    levels, top = tables.levels, tables.order
    backoff = [b.astype(np.float32) for b in tables.backoff]
    arcs = [np.array([tables.vocab_size])]  # of the states of each length
    shorter, paid = [np.zeros(1, np.uint32)], [np.zeros(1, np.float32)]
    next_state: list[NDArray[np.uint32]] = []  # after each n-gram: the longest suffix of it that is a state
    states = 1
    for n in range(1, top + 1):
        below = next_state[-1][levels[n - 1].suffix] if n > 1 else np.zeros(tables.vocab_size, np.uint32)
        if n == top:
            next_state.append(below)
            break
        children = np.bincount(levels[n].prefix, minlength=len(levels[n - 1]))
        is_state = (children > 0) | (backoff[n - 1] != 0)
        number = states + np.cumsum(is_state) - 1
        next_state.append(np.where(is_state, number, below).astype(np.uint32))
        arcs.append(children[is_state])
        shorter.append(below[is_state])
        paid.append(backoff[n - 1][is_state])
        states += int(is_state.sum())
    if states >= 1 << 32:
        raise ValueError(f"model: expected fewer than 2^32 contexts, got {states}; prune it")
    begin = np.zeros(states + 1, np.uint64)
    np.cumsum(np.concatenate(arcs), out=begin[1:])
    token = np.uint16 if tables.vocab_size <= 1 << 16 else np.uint32
    return Arrays(
        arc_begin=begin,
        arc_token=np.concatenate([level.token.astype(token) for level in levels]),
        arc_cost=np.concatenate([c.astype(np.float32) for c in tables.cost]),
        arc_next=np.concatenate(next_state),
        backoff_state=np.concatenate(shorter),
        backoff_cost=np.concatenate(paid),
    )


def decompile(arrays: Arrays, order: int) -> Tables:
    """The tables of an automaton. ValueError unless it is laid out as `compile_tables` does, with every suffix h'w."""
    begin = arrays.arc_begin.astype(np.int64)
    vocab_size = int(begin[1])
    levels, cost = [Grams.unigrams(vocab_size)], [arrays.arc_cost[:vocab_size].astype(np.float64)]
    backoff: list[NDArray[np.float64]] = []
    first, last = 0, 1  # the states of length n - 1
    for n in range(1, order):
        reached = arrays.arc_next[begin[first] : begin[last]].astype(np.int64)
        gram = np.flatnonzero(reached >= last)  # the n-gram of each state of length n
        own = last + np.arange(len(gram))
        if not np.array_equal(reached[gram], own):
            raise ValueError(f"automaton: expected the states of length {n} in lexicographic order from {last} on")
        paid = np.zeros(len(levels[-1]))
        paid[gram] = arrays.backoff_cost[last : last + len(gram)]
        backoff.append(paid)
        first, last = last, last + len(gram)
        levels.append(_next_level(levels, gram, begin[first : last + 1], arrays.arc_token))
        cost.append(arrays.arc_cost[begin[first] : begin[last]].astype(np.float64))
    tables = Tables(levels=tuple(levels), cost=tuple(cost), backoff=tuple(backoff))
    for name, mine, given in zip(Arrays._fields, compile_tables(tables), arrays):
        if not np.array_equal(mine, given):
            raise ValueError(f"automaton: {name} is not that of a closed backoff model in canonical order")
    return tables


def _next_level(
    levels: list[Grams], gram: NDArray[np.int64], begin: NDArray[np.int64], arc_token: NDArray[np.generic]
) -> Grams:
    """The n-grams that are the arcs of the states `gram` [n] (contexts of the last level); begin: [n + 1]."""
    prefix = np.repeat(gram, np.diff(begin))
    token = arc_token[begin[0] : begin[-1]].astype(np.uint32)
    if len(levels) == 1:
        suffix = token.astype(np.int64)
    else:
        suffix = levels[-1].find(levels[-1].suffix[prefix], token)
    if (suffix < 0).any():
        wrong = int((suffix < 0).argmax())
        raise ValueError(
            f"automaton: arc {int(begin[0]) + wrong} (token {int(token[wrong])}) has no arc in the next shorter context"
        )
    return Grams(prefix=prefix.astype(np.uint32), suffix=suffix.astype(np.uint32), token=token)
