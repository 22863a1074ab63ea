"""Sausages as OpenFst acceptors (tropical semiring, label = token id + 1, since label 0 is epsilon)."""

from __future__ import annotations

import numpy as np

from rescore.lattice.extras import needed_for
from rescore.lattice.sausage import PADDING, Sausage

with needed_for("converting a lattice to OpenFst"):
    import pywrapfst


def to_fst(sausage: Sausage) -> pywrapfst.VectorFst:
    """A linear acceptor with one state per slot and one final state; arcs in order of rank, weight = cost."""
    if sausage.is_batch:
        raise TypeError("to_fst: expected a single sausage [T, K], got a batch; convert its members one by one")
    fst = pywrapfst.VectorFst()
    one = pywrapfst.Weight.one(fst.weight_type())
    state = fst.add_state()
    fst.set_start(state)
    for slot in range(int(sausage.lengths)):
        following = fst.add_state()
        for token, cost in zip(sausage.ids[slot].tolist(), sausage.cost[slot].tolist()):
            if token != PADDING:
                fst.add_arc(state, pywrapfst.Arc(token + 1, token + 1, pywrapfst.Weight("tropical", cost), following))
        state = following
    fst.set_final(state, one)
    return fst


def from_fst(fst: pywrapfst.Fst) -> Sausage:
    """Converts an acceptor to a sausage [T, K]; equal costs keep the order of the arcs.

    ValueError unless all arcs of a state lead to the same state, with distinct labels >= 1, and the last state is the
    only final one, with weight 0. Determinise or renumber other acceptors first.
    """
    slots = _slots(fst)
    if not slots:
        raise ValueError("from_fst: the acceptor has no slots: its start state has no arcs")
    width = max(len(slot) for slot in slots)
    ids = np.full((len(slots), width), PADDING, np.int64)
    logp = np.full((len(slots), width), -np.inf, np.float64)
    for row, slot in enumerate(slots):
        ids[row, : len(slot)] = [token for token, _ in slot]
        logp[row, : len(slot)] = [-cost for _, cost in slot]
    return Sausage.from_topk(ids, logp)


def _slots(fst: pywrapfst.Fst) -> list[list[tuple[int, float]]]:
    if fst.weight_type() != "tropical":
        raise ValueError(f"from_fst: expected tropical weights, got {fst.weight_type()}")
    state = fst.start()
    if state < 0:
        raise ValueError("from_fst: the acceptor has no start state")
    slots: list[list[tuple[int, float]]] = []
    seen = {state}
    while arcs := _arcs(fst, state):
        _check_slot(fst, state, arcs)
        slots.append([(arc.ilabel - 1, float(arc.weight)) for arc in arcs])
        state = arcs[0].nextstate
        if state in seen:
            raise ValueError(f"from_fst: state {state} is on a cycle; a sausage has none")
        seen.add(state)
    if not float(fst.final(state)) == 0.0:
        raise ValueError(
            f"from_fst: expected the last state, {state}, to be final with weight 0, got {fst.final(state)}"
        )
    return slots


def _arcs(fst: pywrapfst.Fst, state: int) -> list[pywrapfst.Arc]:
    try:
        return list(fst.arcs(state))
    except IndexError:
        raise ValueError(f"from_fst: expected arcs to states of the acceptor, got one to state {state}") from None


def _check_slot(fst: pywrapfst.Fst, state: int, arcs: list[pywrapfst.Arc]) -> None:
    if fst.final(state) != pywrapfst.Weight.zero("tropical"):
        raise ValueError(f"from_fst: state {state} is final before the last slot")
    for arc in arcs:
        if arc.nextstate != arcs[0].nextstate:
            raise ValueError(
                f"from_fst: arcs of state {state} lead to states {arcs[0].nextstate} and {arc.nextstate}; "
                "expected one state per slot"
            )
        if arc.ilabel != arc.olabel:
            raise ValueError(
                f"from_fst: an arc of state {state} maps label {arc.ilabel} to {arc.olabel}; expected an acceptor"
            )
        if arc.ilabel < 1:
            raise ValueError(f"from_fst: an arc of state {state} has label {arc.ilabel}; expected token id + 1")
