"""Perplexity by order hit, against a dictionary that is looked up n-gram by n-gram."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import from_tables, random_tables, random_text
from support.refusals import refuses

from rescore.lm.model import perplexity as module
from rescore.lm.model.ngram import NGram
from rescore.lm.model.perplexity import perplexity


def hit(slow, history, token) -> int:
    """The order of the longest n-gram that ends in the token."""
    orders = range(1, min(slow.order, len(history) + 1) + 1)
    return max(n for n in orders if (*history[len(history) - n + 1 :], token) in slow.cost)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(1, 6),
    st.sampled_from([None, 0]),
    st.integers(1, 40),
    st.sampled_from([7, 1 << 20]),
)
def test_orders_are_those_of_the_longest_ngrams(seed, order, end_of_text, part, chunk):
    tables = random_tables(seed, order, vocab_size=7, tokens=80)
    slow, text = from_tables(tables), random_text(seed + 1, 7, 50)
    history = [] if end_of_text is None else [end_of_text]
    hits, nats = np.zeros(order, int), np.zeros(order)
    for token in text:
        n = hit(slow, history, token)
        hits[n - 1] += 1
        nats[n - 1] += slow.of(history, token)
        history.append(token)
    parts = (text[at : at + part] for at in range(0, len(text), part))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK", chunk)
        found = perplexity(NGram.from_tables(tables), parts, end_of_text=end_of_text)
    np.testing.assert_array_equal(found.hits, hits)
    np.testing.assert_allclose(found.nats, nats, rtol=1e-5, atol=1e-5)
    assert (found.oov, found.oov_nats) == (0, 0.0)
    report = found.to_json()
    assert report["tokens"] == len(text)
    assert report["perplexity"] == pytest.approx(math.exp(nats.sum() / len(text)), rel=1e-05)
    assert sum(own["share"] for own in report["by_order"]) == pytest.approx(1)


def test_what_is_no_text_is_refused():
    model = NGram.from_tables(random_tables(1, 2))
    refuses(ValueError, lambda: perplexity(model, [[3, 9]]), "tokens", "0..8", "9")
    refuses(ValueError, lambda: model.core.walk(np.array([0, -1], np.int32), 0), "tokens[1]", "0", "9", "-1")
    refuses(ValueError, lambda: model.core.walk(np.array([0], np.int32), model.core.num_states), "state")
    with pytest.raises(TypeError):
        model.core.walk(np.array([0]), 0)
