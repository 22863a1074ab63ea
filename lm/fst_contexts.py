"""Extracts the n-grams of an acceptor with failure arcs; its states may be in any order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lm.fst_read import Acceptor
from rescore.lm.grams import MAX_ORDER
from rescore.lm.tables import NEVER, Tables

Contexts = list[tuple[NDArray[np.int64], NDArray[np.uint32]]]


class Events(NamedTuple):
    """The A token arcs of an acceptor with S states over V tokens, and the costs of its failure arcs.

    source   uint32 [A], ascending
    token    uint32 [A]
    cost     float32 [A]
    next     uint32 [A]
    root     the state without a failure arc
    backoff  float32 [S], costs of the failure arcs; 0 for the root
    final    float32 [S]
    """

    source: NDArray[np.uint32]
    token: NDArray[np.uint32]
    cost: NDArray[np.float32]
    next: NDArray[np.uint32]
    root: int
    backoff: NDArray[np.float32]
    final: NDArray[np.float32]


def events_of(fst: Acceptor, vocab_size: int, failure_label: int) -> Events:
    """Separates token arcs from failure arcs. ValueError for other labels, or unless one state has no failure arc."""
    states = len(fst.final)
    source, label = np.repeat(np.arange(states, dtype=np.uint32), np.diff(fst.first)), fst.arcs["input"]
    is_event = label != failure_label
    failing = source[~is_event]
    if (twice := failing[1:] == failing[:-1]).any():
        raise ValueError(f"state {failing[twice.argmax()]}: expected one failure arc, got two")
    roots = np.flatnonzero(np.bincount(failing, minlength=states) == 0)
    if len(roots) != 1:
        raise ValueError(f"expected one state without a failure arc, the root, got {len(roots)}: {roots[:5].tolist()}")
    backoff = np.zeros(states, np.float32)
    backoff[failing] = fst.arcs["cost"][~is_event]
    label = label[is_event]
    if label.size and not 1 <= label.min() <= label.max() <= vocab_size:
        raise ValueError(f"labels: expected 1..{vocab_size} (token id + 1), got {label.min()}..{label.max()}")
    return Events(
        source=source[is_event],
        token=label.astype(np.uint32) - np.uint32(1),
        cost=fst.arcs["cost"][is_event],
        next=fst.arcs["next"][is_event].astype(np.uint32),
        root=int(roots[0]),
        backoff=backoff,
        final=fst.final,
    )


def tables_of(
    events: Events, start: int, *, vocab_size: int, unseen_cost: float | None, bos: int | None, eos: int | None
) -> Tables:
    """The model of the arcs; see `from_fst` for the arguments.

    An arc's n-gram is the context of its state and its token. Its backoff cost is that of the next state's failure arc,
    if that state's context is longer.
    """
    number, length, contexts = _contexts(events, None if bos is None else (start, bos))
    if eos is None and events.final.any():
        raise ValueError("final costs: expected 0 in every state of a model over fragments; give bos and eos otherwise")
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
    while len(rows) > 1 and not len(rows[-1]):
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
        if (states[1:] == states[:-1]).any():
            raise ValueError(f"expected a backoff model, got a state that two contexts of {size} tokens lead to")
        if len(states) and size >= MAX_ORDER:
            raise ValueError(f"state {states[0]}: expected contexts of at most {MAX_ORDER - 1} tokens, got {size}")
        length[states], number[states] = size, np.arange(len(states))
        contexts.append((states, tokens[order]))
    if (length < 0).any():
        raise ValueError(
            f"state {int((length < 0).argmax())}: no context leads to it; if it is the start state of <s>, give bos"
        )
    return number, length, contexts[:-1]
