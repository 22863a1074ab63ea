"""Lattices and models as OpenFst's acceptors in the log semiring, in double precision, weights rounded as ours."""

import pytest
from support.oracle import FIXED_ONE, Backoff, fixed, path_weight

pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")


def exact(weight) -> float:
    """A weight's float64; it is only ever printed, with nine digits, so what they leave is printed as well."""
    digits = float(weight)
    return digits + float(pywrapfst.times(weight, pywrapfst.Weight("log64", -digits)))


def log_sausage(sausage):
    fst = pywrapfst.VectorFst("log64")
    states = [fst.add_state() for _ in range(len(sausage) + 1)]
    fst.set_start(states[0])
    for t, slot in enumerate(sausage):
        for token, cost in slot:
            weight = pywrapfst.Weight("log64", fixed(cost) / FIXED_ONE)
            fst.add_arc(states[t], pywrapfst.Arc(token + 1, token + 1, weight, states[t + 1]))
    fst.set_final(states[-1])
    return fst


def log_model(lm: Backoff, alpha: float, history):
    fst = pywrapfst.VectorFst("log64")
    number = {context: fst.add_state() for context in lm.arcs}
    fst.set_start(number[lm.context(tuple(history))])
    for context, state in number.items():
        for token in range(lm.vocab_size):
            weight = pywrapfst.Weight("log64", path_weight(0, [lm], [alpha], [context], token) / FIXED_ONE)
            fst.add_arc(state, pywrapfst.Arc(token + 1, token + 1, weight, number[lm.context((*context, token))]))
        fst.set_final(state)
    return fst.arcsort("ilabel")
