"""OpenFst in and out, through pynini's `pywrapfst`.

Label = token id + 1, as 0 is epsilon. The failure arc has label 0 or one of the caller's; every state is final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import check_vocabulary
from rescore.lm.ngram import NGram
from rescore.lm.tables import NEVER, Tables

if TYPE_CHECKING:
    import pywrapfst


def to_fst(model: NGram, *, failure_label: int = 0, start: int = 0) -> pywrapfst.VectorFst:
    """The automaton as an acceptor over the tropical semiring, its states and their order kept.

    failure_label  label of the backoff arcs: 0 for epsilon, or one above V for a phi matcher
    start          the start state; 0: the root, for text that nothing is known before
    """
    import pywrapfst

    if failure_label != 0 and failure_label <= model.vocab_size:
        raise ValueError(f"failure_label: expected 0 or more than V = {model.vocab_size}, got {failure_label}")
    arrays = model.arrays
    states = len(arrays.backoff_state)
    if not 0 <= start < states:
        raise ValueError(f"start: expected a state below {states}, got {start}")
    fst = pywrapfst.VectorFst("standard")
    fst.add_states(states)
    begin = arrays.arc_begin.tolist()
    for state in range(states):
        arcs = slice(begin[state], begin[state + 1])
        if state:
            _add(fst, state, failure_label, float(arrays.backoff_cost[state]), int(arrays.backoff_state[state]))
        for token, cost, after in zip(
            arrays.arc_token[arcs].tolist(), arrays.arc_cost[arcs].tolist(), arrays.arc_next[arcs].tolist()
        ):
            _add(fst, state, token + 1, cost, after)
        fst.set_final(state)
    fst.set_start(start)
    return fst


def _add(fst: pywrapfst.VectorFst, state: int, label: int, cost: float, after: int) -> None:
    import pywrapfst

    fst.add_arc(state, pywrapfst.Arc(label, label, pywrapfst.Weight("tropical", cost), after))


def from_fst(
    fst: pywrapfst.Fst,
    *,
    vocab_size: int,
    failure_label: int = 0,
    unseen_cost: float | None = None,
    bos: int | None = None,
    eos: int | None = None,
) -> NGram:
    """The model that an acceptor holds, its states in any order.

    A model over fragments, as `to_fst` makes, has final states of cost 0. One over sentences, as OpenGrm makes, has
    the context of <s> as its start state and the cost of </s> as its final costs: `bos` and `eos` are the ids for them.
    unseen_cost: cost of ids without an arc at the root; None makes that an error.
    """
    check_vocabulary(vocab_size, 1)
    source, label, cost, after, backoff = _arcs(fst, failure_label)
    final = np.array([float(fst.final(state)) for state in fst.states()])
    if label.size and not 1 <= label.min() <= label.max() <= vocab_size:
        raise ValueError(f"labels: expected 1..{vocab_size} (token id + 1), got {label.min()}..{label.max()}")
    root = _root(fst, backoff)
    contexts = _contexts(source, label, after, root, len(final), None if bos is None else (int(fst.start()), bos))
    rows, costs = [], []
    for length, context in enumerate(contexts):
        from_here = np.isin(source, context[:, 0])
        state = source[from_here]
        place = np.searchsorted(context[:, 0], state)
        grams = np.column_stack([context[place, 1:], label[from_here] - 1]).astype(np.uint32)
        own = cost[from_here]
        if eos is not None:
            ends = context[np.isfinite(final[context[:, 0]])]
            grams = np.concatenate([grams, np.column_stack([ends[:, 1:], np.full(len(ends), eos)]).astype(np.uint32)])
            own = np.concatenate([own, final[ends[:, 0]]])
        elif final.any():
            raise ValueError(
                "final costs: expected 0 in every state of a model over fragments; give bos and eos otherwise"
            )
        if length == 0 and bos is not None:
            grams, own = np.append(grams, np.array([[bos]], np.uint32), axis=0), np.append(own, NEVER)
        rows.append(grams)
        costs.append(own)
    return _model(rows, costs, contexts, backoff, vocab_size, unseen_cost, bos, eos)


def _model(
    rows: list[NDArray[np.uint32]],
    costs: list[NDArray[np.float64]],
    contexts: list[NDArray[np.int64]],
    backoff: dict[int, tuple[int, float]],
    vocab_size: int,
    unseen_cost: float | None,
    bos: int | None,
    eos: int | None,
) -> NGram:
    while len(rows) > 1 and not len(rows[-1]):
        rows.pop(), costs.pop()
    paid = []
    for length, own in enumerate(rows[:-1], 1):
        known = (
            {tuple(row[1:]): backoff[row[0]][1] for row in contexts[length].tolist()} if length < len(contexts) else {}
        )
        paid.append(np.array([known.get(tuple(row), 0.0) for row in own.tolist()], np.float64))
    tables = Tables.from_rows(rows, costs, paid, vocab_size=vocab_size, unseen_cost=unseen_cost, bos=bos, eos=eos)
    return NGram.from_tables(tables)


def _arcs(
    fst: pywrapfst.Fst, failure_label: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], dict[int, tuple[int, float]]]:
    """Source, label, cost and next state of the arcs, and {state: (shorter context, cost)} of the failure arcs."""
    arcs: list[tuple[int, int, float, int]] = []
    backoff: dict[int, tuple[int, float]] = {}
    for state in fst.states():
        for arc in fst.arcs(state):
            if arc.ilabel != arc.olabel:
                raise ValueError(f"state {state}: expected an acceptor, got labels {arc.ilabel}:{arc.olabel}")
            if arc.ilabel != failure_label:
                arcs.append((state, arc.ilabel, float(arc.weight), arc.nextstate))
            elif state in backoff:
                raise ValueError(f"state {state}: expected one failure arc, got two")
            else:
                backoff[state] = arc.nextstate, float(arc.weight)
    source, label, cost, after = (np.array(column) for column in zip(*arcs)) if arcs else (np.zeros(0, int),) * 4
    return source, label, cost.astype(np.float64), after, backoff


def _root(fst: pywrapfst.Fst, backoff: dict[int, tuple[int, float]]) -> int:
    roots = [state for state in fst.states() if state not in backoff]
    if len(roots) != 1:
        raise ValueError(f"expected one state without a failure arc, the root, got {len(roots)}: {roots[:5]}")
    return roots[0]


def _contexts(
    source: NDArray[np.int64],
    label: NDArray[np.int64],
    after: NDArray[np.int64],
    root: int,
    states: int,
    start: tuple[int, int] | None,
) -> list[NDArray[np.int64]]:
    """The contexts of each length, int64 [n, 1 + length]: the state and its tokens, ascending by state."""
    length = np.full(states, -1)
    length[root] = 0
    waves = [np.array([[root]])]
    while len(waves[-1]):
        here = np.flatnonzero(np.isin(source, waves[-1][:, 0]) & (length[after] < 0))
        place = np.searchsorted(waves[-1][:, 0], source[here])
        wave = np.column_stack([after[here], waves[-1][place, 1:], label[here] - 1])
        if len(waves) == 1 and start is not None and length[start[0]] < 0:
            wave = np.concatenate([wave, [start]])
        wave = wave[np.argsort(wave[:, 0], kind="stable")]
        if (wave[1:, 0] == wave[:-1, 0]).any():
            raise ValueError(f"a state of length {len(waves)} is entered by two contexts: no backoff model")
        length[wave[:, 0]] = len(waves)
        waves.append(wave)
    if (length < 0).any():
        raise ValueError(
            f"state {int((length < 0).argmax())} is reached by no context; bos gives that of the start state"
        )
    return waves[:-1]
