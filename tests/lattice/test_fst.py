"""Sausages as OpenFst acceptors, there and back; acceptors that are no sausages."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refuses

pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")

from rescore.lattice.fst import from_fst, to_fst
from rescore.lattice.sausage import Sausage


def acceptor(*arcs, start=0, final=(), states=4) -> "pywrapfst.VectorFst":
    """arcs: (state, ilabel, olabel, weight, next state); final: (state, weight)."""
    fst = pywrapfst.VectorFst()
    fst.add_states(states)
    if start is not None:
        fst.set_start(start)
    for state, ilabel, olabel, weight, following in arcs:
        fst.add_arc(state, pywrapfst.Arc(ilabel, olabel, weight, following))
    for state, weight in final:
        fst.set_final(state, weight)
    return fst


CANDIDATES = st.tuples(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.25, 9.75]))
SLOTS = st.lists(CANDIDATES, min_size=1, max_size=6, unique_by=lambda candidate: candidate[0])


@settings(max_examples=60)
@given(st.lists(SLOTS, min_size=1, max_size=6))
def test_round_trip(slots):
    width = max(map(len, slots))
    ids = np.array([[token for token, _ in slot] + [-1] * (width - len(slot)) for slot in slots])
    logp = np.array([[-cost for _, cost in slot] + [0.0] * (width - len(slot)) for slot in slots])
    sausage = Sausage.from_topk(ids, logp)
    again = from_fst(to_fst(sausage))
    assert (again.ids == sausage.ids).all() and (again.cost == sausage.cost).all()


def test_trailing_empty_slots_are_left_out():
    sausage = Sausage.from_topk([[5], [-1]], np.array([[-1.0], [0.0]]))
    assert to_fst(sausage).num_states() == 2
    assert from_fst(to_fst(sausage)).slots == 1


def test_states_in_any_order():
    fst = acceptor((2, 5, 5, 0.5, 0), (2, 3, 3, 0.25, 0), (0, 1, 1, 1.0, 1), start=2, final=[(1, 0.0)], states=3)
    assert from_fst(fst).ids.tolist() == [[2, 4], [0, -1]]


BAD = [
    (["start"], acceptor(start=None)),
    (["slot"], acceptor(final=[(0, 0.0)])),
    (["state 0", "1", "2"], acceptor((0, 1, 1, 0, 1), (0, 2, 2, 0, 2), final=[(1, 0.0)])),
    (["state 0", "final"], acceptor((0, 1, 1, 0, 1), final=[(0, 0.0), (1, 0.0)])),
    (["1", "Infinity"], acceptor((0, 1, 1, 0, 1))),
    (["final", "2"], acceptor((0, 1, 1, 0, 1), final=[(1, 2.0)])),
    (["label 1", "2"], acceptor((0, 1, 2, 0, 1), final=[(1, 0.0)])),
    (["label 0"], acceptor((0, 0, 0, 0, 1), final=[(1, 0.0)])),
    (["state 0", "cycle"], acceptor((0, 1, 1, 0, 1), (1, 1, 1, 0, 0))),
    (["state 4"], acceptor((0, 1, 1, 0, 4))),
    (["state -2"], acceptor((0, 1, 1, 0, -2))),
    (["slot", "twice"], acceptor((0, 1, 1, 0, 1), (0, 1, 1, 1, 1), final=[(1, 0.0)])),
]


@pytest.mark.parametrize("named, fst", BAD, ids=[" ".join(named) for named, _ in BAD])
def test_acceptors_that_are_no_sausages(named, fst):
    refuses(ValueError, lambda: from_fst(fst), *named)


def test_what_else_is_refused():
    refuses(ValueError, lambda: from_fst(pywrapfst.VectorFst("log")), "log")
    refuses(TypeError, lambda: to_fst(Sausage.batch([Sausage.from_topk([[5]], np.array([[-1.0]]))])), "sausage")
