"""Extracts the n-grams of an acceptor with failure arcs; its states may be in any order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm.fst_read import Acceptor, refuse_arcs
from rescore.lm.grams import MAX_ORDER, TOKEN_BITS, pack
from rescore.lm.tables import MAX_COST, NEVER, ROUNDING, Tables

Contexts = list[tuple[NDArray[np.int64], NDArray[np.uint32]]]


class Events(NamedTuple):
    """The A token arcs of an acceptor with S states over V tokens, and its failure arcs.

    source   uint32 [A], ascending
    token    uint32 [A]
    cost     float32 [A], at least 0 but for rounding
    next     uint32 [A]
    root     the state without a failure arc
    shorter  uint32 [S], where the failure arcs lead; the root for itself
    backoff  float32 [S], costs of the failure arcs; 0 for the root
    final    float32 [S]
    """

    source: NDArray[np.uint32]
    token: NDArray[np.uint32]
    cost: NDArray[np.float32]
    next: NDArray[np.uint32]
    root: int
    shorter: NDArray[np.uint32]
    backoff: NDArray[np.float32]
    final: NDArray[np.float32]


def events_of(fst: Acceptor, vocab_size: int, failure_label: int) -> Events:
    """Separates token arcs from failure arcs. ValueError for other labels, for costs that no model has, and unless one
    state has no failure arc.
    """
    states, label, cost = len(fst.final), fst.arcs["input"], fst.arcs["cost"]
    source = np.repeat(np.arange(states, dtype=np.uint32), np.diff(fst.first))
    is_event = label != failure_label
    other = is_event & ((label < 1) | (label > vocab_size))
    refuse_arcs(fst, other, f"a label in 1..{vocab_size} (token id + 1), got {{input}}")
    refuse_arcs(fst, np.abs(cost) > MAX_COST, f"a cost of at most {MAX_COST:.0f}, got {{cost}}")
    refuse_arcs(fst, is_event & (cost < -ROUNDING), "a cost of at least 0, for a probability of at most 1, got {cost}")
    keys = np.sort(pack(source[is_event], label[is_event] - 1))
    if (again := keys[1:] == keys[:-1]).any():
        state, token = divmod(int(keys[:-1][again][0]), 1 << TOKEN_BITS)
        raise ValueError(f"state {state}: expected one arc with label {token + 1}, got two")
    failing = source[~is_event]
    if (twice := failing[1:] == failing[:-1]).any():
        raise ValueError(f"state {failing[twice.argmax()]}: expected one failure arc, got two")
    roots = np.flatnonzero(np.bincount(failing, minlength=states) == 0)
    if len(roots) != 1:
        raise ValueError(f"expected one state without a failure arc, the root, got {len(roots)}: {roots[:5].tolist()}")
    shorter, backoff = np.full(states, roots[0], np.uint32), np.zeros(states, np.float32)
    shorter[failing], backoff[failing] = fst.arcs["next"][~is_event], cost[~is_event]
    return Events(
        source=source[is_event],
        token=label[is_event].astype(np.uint32) - np.uint32(1),
        cost=cost[is_event],
        next=fst.arcs["next"][is_event].astype(np.uint32),
        root=int(roots[0]),
        shorter=shorter,
        backoff=backoff,
        final=fst.final,
    )


def tables_of(
    events: Events,
    start: int,
    *,
    vocab_size: int,
    unseen_cost: float | None = None,
    bos: int | None = None,
    eos: int | None = None,
) -> Tables:
    """The model of the arcs; see `from_fst` for the arguments.

    An arc's n-gram is the context of its state and its token. Its backoff cost is that of the next state's failure arc,
    if that state's context is longer.
    """
    number, length, contexts = _contexts(events, None if bos is None else (start, bos))
    _check_final(events.final, eos)
    _check_suffixes(events, length, None if bos is None else (start, bos))
    rows, costs, paid = [], [], []
    reached = length[events.next]
    for size, (states, tokens) in enumerate(contexts):
        own = np.flatnonzero(length[events.source] == size)
        grams = [_followed(tokens[number[events.source[own]]], events.token[own])]
        cost = [events.cost[own].astype(np.float64)]
        backoff = [np.where(reached[own] > size, events.backoff[events.next[own]], 0).astype(np.float64)]
        if eos is not None:
            ends = np.isfinite(events.final[states])
            grams.append(_followed(tokens[ends], np.full(ends.sum(), eos)))
            cost.append(events.final[states[ends]].astype(np.float64))
            backoff.append(np.zeros(ends.sum()))
        if size == 0 and bos is not None:
            grams.append(np.array([[bos]], np.uint32))
            cost.append(np.array([NEVER]))
            backoff.append(events.backoff[[start]].astype(np.float64))
        rows.append(np.concatenate(grams))
        costs.append(np.concatenate(cost))
        paid.append(np.concatenate(backoff))
    while len(rows) > 1 and not len(rows[-1]) and not paid[-2].any():
        rows.pop(), costs.pop(), paid.pop()
    return Tables.from_rows(rows, costs, paid[:-1], vocab_size=vocab_size, unseen_cost=unseen_cost, bos=bos, eos=eos)


def _followed(contexts: NDArray[np.uint32], token: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return np.column_stack([contexts, token]).astype(np.uint32, copy=False)


def _contexts(events: Events, start: tuple[int, int] | None) -> tuple[NDArray[np.uint32], NDArray[np.int8], Contexts]:
    """The context of each state: its number among those of its length, its length; and the contexts of each length.

    The latter are their states, ascending, and tokens uint32 [n, length]. Contexts are found breadth-first from the
    root: one of n tokens is first reached after n arcs.

    start  the state of the context <s>, to which no arc may lead, and the id of <s>
    """
    length, number = np.full(len(events.final), -1, np.int8), np.zeros(len(events.final), np.uint32)
    length[events.root] = 0
    contexts: Contexts = [(np.array([events.root]), np.zeros((1, 0), np.uint32))]
    while len(contexts[-1][0]):
        size, before = len(contexts), contexts[-1][1]
        here = np.flatnonzero((length[events.source] == size - 1) & (length[events.next] < 0))
        states, tokens = (
            events.next[here].astype(np.int64),
            _followed(before[number[events.source[here]]], events.token[here]),
        )
        if size == 1 and start is not None and length[start[0]] < 0:
            states, tokens = np.append(states, start[0]), np.append(tokens, np.array([start[1:]], np.uint32), axis=0)
        order = np.argsort(states, kind="stable")
        states = states[order]
        if (twice := states[1:] == states[:-1]).any():
            raise ValueError(
                f"state {states[twice.argmax()]}: expected one context that leads to it, got two of length {size}"
            )
        if len(states) and size >= MAX_ORDER:
            raise ValueError(f"state {states[0]}: expected contexts of at most {MAX_ORDER - 1} tokens, got {size}")
        length[states], number[states] = size, np.arange(len(states))
        contexts.append((states, tokens[order]))
    if (length < 0).any():
        raise ValueError(
            f"state {int((length < 0).argmax())}: no context leads to it; if it is the start state of <s>, give bos"
        )
    return number, length, contexts[:-1]


def _check_final(final: NDArray[np.float32], eos: int | None) -> None:
    ends = np.isfinite(final)
    wrong = final != 0 if eos is None else ends & ~((final >= -ROUNDING) & (final <= MAX_COST))
    if wrong.any():
        expected = (
            "0, as in a model over fragments; give bos and eos otherwise" if eos is None else f"0..{MAX_COST:.0f}"
        )
        raise ValueError(f"state {wrong.argmax()}: expected a final cost of {expected}, got {final[wrong.argmax()]}")


def _check_suffixes(events: Events, length: NDArray[np.int8], start: tuple[int, int] | None) -> None:
    """ValueError unless every failure arc leads to the longest shorter suffix of its state's context that is a context,
    and every other arc to the longest suffix of the context and its token that is one.
    """
    tree = length[events.next] > length[events.source]
    parent, token, child = events.source[tree], events.token[tree], events.next[tree]
    if start is not None:
        parent, token, child = np.append(parent, events.root), np.append(token, start[1]), np.append(child, start[0])
    keys = pack(parent, token)
    order = np.argsort(keys)
    sorted_keys, sorted_child = np.append(keys[order], np.iinfo(np.uint64).max), child[order]

    def after(state: NDArray[np.uint32], token: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The state of the longest suffix of a state's context and a token; `shorter` is right up to that state."""
        found, left = np.full(len(state), events.root, np.uint32), np.arange(len(state))
        while len(left):
            key = pack(state, token)
            at = np.searchsorted(sorted_keys, key)
            hit = sorted_keys[at] == key
            found[left[hit]] = sorted_child[at[hit]]
            on = ~hit & (state != events.root)
            left, state, token = left[on], events.shorter[state[on]], token[on]
        return found

    for size in range(1, int(length.max()) + 1):
        own = length[child] == size
        right = np.full(own.sum(), events.root) if size == 1 else after(events.shorter[parent[own]], token[own])
        _refuse_target(child[own], events.shorter[child[own]], right, "the failure arc")
    others = np.flatnonzero(~tree)
    right = after(events.source[others], events.token[others])
    if (wrong := events.next[others] != right).any():
        arc = others[wrong.argmax()]
        _refuse_target(events.source[[arc]], events.next[[arc]], right[wrong][:1], f"label {events.token[arc] + 1}")


def _refuse_target(state: NDArray[Any], got: NDArray[Any], right: NDArray[Any], arc: str) -> None:
    if (wrong := got != right).any():
        at = int(wrong.argmax())
        raise ValueError(
            f"state {state[at]}: expected {arc} to lead to state {right[at]}, the longest suffix of the context, got "
            f"{got[at]}; only n-gram automata are read"
        )
