"""Tables to the six arrays of the automaton, and back.

A state is a context that has n-grams of its own or a backoff weight other than 1, or is a suffix of such a context;
states are ordered by the length of their context, then by the context read backwards, the root first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import Grams, pack
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
    kept = _states(tables, backoff)
    # By order: which state each n-gram is as a context, or which it leads to.
    number: list[NDArray[np.uint32]] = []
    sources, shorter, paid = [np.zeros(1, np.int64)], [np.zeros(1, np.uint32)], [np.zeros(1, np.float32)]
    first = np.arange(tables.vocab_size)  # the first token of each n-gram
    states = 1
    for n in range(1, top + 1):
        level = levels[n - 1]
        below = number[-1][level.suffix] if n > 1 else np.zeros(tables.vocab_size, np.uint32)
        if n == top:
            number.append(below)
            break
        if n > 1:
            first = first[level.prefix]
        gram = np.flatnonzero(kept[n - 1])
        gram = gram[np.lexsort((first[gram], below[gram]))]
        own = below.copy()
        own[gram] = states + np.arange(len(gram))
        number.append(own)
        sources.append(gram)
        shorter.append(below[gram])
        paid.append(backoff[n - 1][gram])
        states += len(gram)
    if states >= 1 << 32:
        raise ValueError(f"model: expected fewer than 2^32 contexts, got {states}; prune it")
    rows, lengths = zip(*(_rows_of(level, gram) for level, gram in zip(levels, sources)))
    begin = np.zeros(states + 1, np.uint64)
    np.cumsum(np.concatenate(lengths), out=begin[1:])
    token = np.uint16 if tables.vocab_size <= 1 << 16 else np.uint32
    return Arrays(
        arc_begin=begin,
        arc_token=np.concatenate([level.token[own].astype(token) for level, own in zip(levels, rows)]),
        arc_cost=np.concatenate([c[own].astype(np.float32) for c, own in zip(tables.cost, rows)]),
        arc_next=np.concatenate([after[own] for after, own in zip(number, rows)]),
        backoff_state=np.concatenate(shorter),
        backoff_cost=np.concatenate(paid),
    )


def _states(tables: Tables, backoff: list[NDArray[np.float32]]) -> list[NDArray[np.bool_]]:
    """Which n-grams of the orders below N are states: with h its suffix h' is one too."""
    kept: list[NDArray[np.bool_]] = []
    for n in range(tables.order - 1, 0, -1):
        own = backoff[n - 1] != 0
        own[tables.levels[n].prefix] = True
        if kept:
            own[tables.levels[n].suffix[kept[0]]] = True
        kept.insert(0, own)
    return kept


def _rows_of(level: Grams, contexts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows of a level, context by context, and how many each context has."""
    begin = level.begin(int(max(contexts.max(initial=-1), level.prefix.max(initial=0))) + 1)
    lengths = begin[contexts + 1] - begin[contexts]
    ends = np.cumsum(lengths)
    rows = np.arange(ends[-1] if len(ends) else 0)
    return rows + np.repeat(begin[contexts] - (ends - lengths), lengths), lengths


def decompile(arrays: Arrays, order: int) -> Tables:
    """The tables of an automaton. ValueError unless it is laid out as `compile_tables` does, with every suffix h'w."""
    begin = arrays.arc_begin.astype(np.int64)
    vocab_size = int(begin[1])
    levels, cost = [Grams.unigrams(vocab_size)], [arrays.arc_cost[:vocab_size].astype(np.float64)]
    backoff: list[NDArray[np.float64]] = []
    first, last = 0, 1  # the states of length n - 1
    row = np.arange(vocab_size)  # of the arcs of order n among the n-grams
    for n in range(1, order):
        reached = arrays.arc_next[begin[first] : begin[last]].astype(np.int64)
        arc = np.flatnonzero(reached >= last)  # that leads to each state of length n
        arc = arc[np.argsort(reached[arc], kind="stable")]
        if not np.array_equal(reached[arc], last + np.arange(len(arc))):
            raise ValueError(f"automaton: expected one arc to each state of length {n} from {last} on")
        gram = row[arc]
        paid = np.zeros(len(levels[-1]))
        paid[gram] = arrays.backoff_cost[last : last + len(gram)]
        backoff.append(paid)
        first, last = last, last + len(gram)
        level, sort = _next_level(levels, gram, begin[first : last + 1], arrays.arc_token)
        levels.append(level)
        cost.append(arrays.arc_cost[begin[first] : begin[last]][sort].astype(np.float64))
        row = np.empty_like(sort)
        row[sort] = np.arange(len(sort))
    tables = Tables(levels=tuple(levels), cost=tuple(cost), backoff=tuple(backoff))
    for name, mine, given in zip(Arrays._fields, compile_tables(tables), arrays):
        if not np.array_equal(mine, given):
            raise ValueError(f"automaton: {name} is not that of a closed backoff model in canonical order")
    return tables


def _next_level(
    levels: list[Grams], gram: NDArray[np.int64], begin: NDArray[np.int64], arc_token: NDArray[np.generic]
) -> tuple[Grams, NDArray[np.int64]]:
    """The n-grams that are the arcs of the states `gram` [n] (contexts of the last level), and the arc of each;
    begin: [n + 1]."""
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
    sort = np.argsort(pack(prefix, token), kind="stable")
    level = Grams(prefix=prefix.astype(np.uint32), suffix=suffix.astype(np.uint32), token=token)
    return Grams(prefix=level.prefix[sort], suffix=level.suffix[sort], token=level.token[sort]), sort
