"""Normalised lattices against OpenFst: composition and push in the log semiring, in double precision."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.log_fsts import exact, log_model, log_sausage
from support.oracle import models, sausages
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
