"""An n-gram model over the ids of a target that has more: padded logits, tokens added later."""

import numpy as np
import pytest
from support.oracle_lm import random_tables
from support.refusals import refuses

from rescore.lm.model.ngram import NGram

V = 7


@pytest.fixture(params=[1, 2, 4])
def model(request) -> NGram:
    return NGram.from_tables(random_tables(request.param, request.param, vocab_size=V), words=list("abcdefg"))


@pytest.mark.parametrize("more", [V + 1, 300, 1 << 16, (1 << 16) + 1])
def test_known_ids_cost_what_they_cost_and_others_have_no_mass(model, more):
    wide = model.widened(more)
    wide.core.check()
    assert wide.vocab_size == more and wide.words[:V] == model.words and set(wide.words[V:]) == {""}
    for state in range(model.core.num_states):
        cost = wide.distribution(state)
        np.testing.assert_array_equal(cost[:V], model.distribution(state))
        assert cost[V:].max() < np.inf and np.exp(-cost[V:].astype(float)).sum() < 1e-80


def test_a_history_begins_anew_after_an_id_that_the_model_lacks(model):
    wide, random = model.widened(40), np.random.default_rng(0)
    text = random.integers(0, 2 * V, 200)
    text[text >= V] += 20
    assert wide.walk(text[text < V]).state.tolist() == model.walk(text[text < V]).state.tolist()
    for n in range(len(text)):
        known = text[:n][np.flatnonzero(text[:n] >= V).max(initial=-1) + 1 :]
        assert wide.start(text[:n]) == model.start(known)
        if text[n] < V:
            assert wide.score(text[n : n + 1], history=text[:n]) == model.score(text[n : n + 1], history=known)


@pytest.mark.parametrize("more", [20, 70_000])
@pytest.mark.parametrize("quantised", [False, True])
def test_it_is_a_model_like_any_other(model, more, quantised, tmp_path):
    wide = (model.quantised() if quantised else model).widened(more)
    wide.save(tmp_path / "wide.ngram")
    found = NGram.open(tmp_path / "wide.ngram")
    again = NGram.from_arrays(wide.arrays, order=wide.order, vocab_size=more)
    for state in range(wide.core.num_states):
        np.testing.assert_array_equal(found.distribution(state), wide.distribution(state))
        np.testing.assert_array_equal(again.distribution(state), wide.distribution(state))


def test_the_n_grams_are_shared_and_the_view_is_kept(model):
    wide = model.widened(9)
    assert wide is model.widened(9) and model.widened(V) is model
    for name in ("arc_token", "arcs", "contexts", "jumps", "backoff_state"):
        assert getattr(wide.compact, name) is getattr(model.compact, name)
    refuses(ValueError, lambda: model.widened(6), "6", "7")
