"""Hypothesis strategies: small lattices, models, weights and histories, to compare searches with enumeration."""

from hypothesis import strategies as st
from support.oracle import models, sausages

VOCAB = 7
temperatures = st.sampled_from([0.5, 1.0, 1.0, 1.7])


@st.composite
def problems(draw, most_models=2):
    lms = draw(st.lists(models(VOCAB), min_size=0 if most_models > 1 else 1, max_size=most_models))
    batch = draw(st.lists(sausages(VOCAB), min_size=1, max_size=3))
    slots = max([1, *(len(sausage) for sausage in batch)])
    alpha = st.one_of(st.just(0.0), st.integers(1, 16).map(lambda n: n / 8), st.floats(0, 4))
    alphas = [draw(st.lists(alpha, min_size=slots, max_size=slots)) for _ in lms]
    token = st.integers(0, VOCAB - 1)
    histories = draw(st.lists(st.lists(token, max_size=4), min_size=len(batch), max_size=len(batch)))
    return lms, batch, alphas, histories, draw(st.sampled_from([1, 2, 3, 16, 300]))
