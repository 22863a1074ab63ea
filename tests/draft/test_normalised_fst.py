"""Normalised lattices against OpenFst: composition and push in the log semiring, in double precision."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import FIXED_ONE, Backoff, fixed, models, path_weight, sausages
from support.oracle_normalised import normalise, strings
from support.problems import VOCAB

pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")


@settings(max_examples=60)
@given(
    models(VOCAB),
    sausages(VOCAB, most_slots=3).filter(bool),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(st.integers(0, VOCAB - 1), max_size=3),
)
def test_equals_openfst(lm, sausage, alpha, history):
    """OpenFst composes the sausage with the model, every token an arc of every state, weights rounded as ours, and
    pushes it in the log semiring.
    """
    pushed = pywrapfst.push(
        pywrapfst.compose(log_sausage(sausage), log_model(lm, alpha, history)),
        push_weights=True,
        remove_total_weight=True,
        delta=1e-15,
    )
    every, drafts = strings([sausage])
    rows = normalise([lm], [sausage], [[alpha] * len(sausage)], [history]).rows(drafts)[0]
    for i, string in enumerate(every[0]):
        state = pushed.start()
        for t, rank in enumerate(string):
            arcs = {arc.ilabel - 1: (exact(arc.weight), arc.nextstate) for arc in pushed.arcs(state)}
            wanted = [math.exp(-arcs[token][0]) for token, _ in sausage[t]]
            assert rows[i, t, : len(wanted)] == pytest.approx(wanted, abs=1e-12)
            state = arcs[sausage[t][rank][0]][1]


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
            fst.add_arc(
                states[t],
                pywrapfst.Arc(token + 1, token + 1, pywrapfst.Weight("log64", fixed(cost) / FIXED_ONE), states[t + 1]),
            )
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
