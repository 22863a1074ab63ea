"""Models: scores and perplexity by a dictionary that is backed off from; models of texts; tokenizers and more ids."""

import math
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import cli, forms
from support.models import assert_same_model
from support.oracle_lm import from_tables, random_history, random_tables, random_text
from support.refusals import refused, refuses

from rescore.lm.build.in_memory import build, build_ngram
from rescore.lm.model import example
from rescore.lm.model import perplexity as module
from rescore.lm.model.ngram import NGram
from rescore.lm.model.perplexity import perplexity
from rescore.lm.model.tokenizer import TextTokenizer

WORKED = example.model()
V = 7


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_scores_are_those_of_backing_off(seed, order):
    tables = random_tables(seed, order, vocab_size=7, tokens=80)
    model, slow, draw = NGram.from_tables(tables), from_tables(tables), random.Random(seed)
    for length in (0, 1, 3, 8):
        history, tokens = random_history(draw, 7, length), random_history(draw, 7, 9)
        text = [*history.tolist(), *tokens.tolist()]
        expected = [slow.of(text[: length + i], token) for i, token in enumerate(tokens.tolist())]
        np.testing.assert_allclose(model.score(tokens, history=history), expected, rtol=1e-5, atol=1e-5)
        state = model.start(history)
        after, cost = model.step(state, int(tokens[0]))
        assert cost == pytest.approx(expected[0], rel=1e-5)
        assert after == model.start(text[: length + 1])
        row = model.distribution(state)
        assert row.dtype == np.float32 and row[tokens[0]] == pytest.approx(expected[0], rel=1e-5)
        assert np.exp(-row.astype(float)).sum() == pytest.approx(1, abs=1e-5)


def test_the_worked_example():
    p = np.exp(-WORKED.score([example.LIONEL, example.MESSI, example.SCORED], history=example.HISTORY))
    np.testing.assert_allclose(p, [0.1, 0.8, 0.9], rtol=1e-6)
    p = np.exp(-WORKED.score([example.LIONEL, example.RONALDO]))
    np.testing.assert_allclose(p, [0.1, 0.1 * 0.2 / 0.9], rtol=1e-6)
    assert WORKED.ids(["Messi", "scored"]).tolist() == [1, 4]
    sizes = {"states": 5, "arcs": 10, "ngrams": [6, 3, 1], "bytes": 422, "bytes_per_ngram": 42.2}
    assert WORKED.info() == {"order": 3, "vocab_size": 6, **sizes, "words": True}


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


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_of_order_is_the_model_estimated_at_that_order(order):
    texts = np.random.default_rng(order).integers(0, 9, (3, 400))
    whole, expected = (build(texts, order=n, vocab_size=9, end_of_text=0) for n in (4, order))
    assert_same_model(whole.of_order(order), expected)
    refuses(ValueError, lambda: whole.of_order(order + 4), "order", "1..4", order + 4)


def worked_with(**changes):
    return NGram.from_arrays(WORKED.arrays, order=3, vocab_size=6, **changes)


def test_a_model_with_another_tokenizer_is_refused():
    WORKED.require_tokenizer("abc")  # it says nothing of its own
    model = worked_with(metadata={"tokenizer": "abc"}, words=(*"abcde", ""))  # id 5 was padding
    for size in (6, 7):
        model.require_tokenizer("abc", size)
    refuses(ValueError, lambda: model.require_tokenizer("abc", 5), "5", "6")
    refuses(ValueError, lambda: model.require_tokenizer("xyz"), "abc")
    model.require_tokenizer("xyz", 8, lambda: [*"abcdefgh"])  # tokens may have been added since
    refuses(ValueError, lambda: model.require_tokenizer("xyz", 8, lambda: [*"abcdxfgh"]), "abc")


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: WORKED.score([0, 6]), ValueError, ["tokens", "0..5", "6"]),
        (lambda: WORKED.score([[0], [1]]), TypeError, ["tokens", "[2, 1]"]),
        (lambda: WORKED.start([-1]), ValueError, ["history", "0..5", "-1"]),
        (lambda: WORKED.ids(["Messi", "Pele"]), ValueError, ["'Pele'"]),
        (lambda: worked_with().ids(["Messi"]), ValueError, ["words"]),
        (lambda: worked_with(words=("a",)), ValueError, ["words", "6", "1"]),
        (lambda: WORKED.widened(5), ValueError, ["5", "6"]),
        (lambda: perplexity(WORKED, [[3, 6]]), ValueError, ["tokens", "0..5", "6"]),
        (lambda: WORKED.core.walk(np.array([0, -1], np.int32), 0), ValueError, ["tokens[1]", "0", "6", "-1"]),
        (lambda: WORKED.core.walk(np.array([0], np.int32), WORKED.core.num_states), ValueError, ["state"]),
        (lambda: WORKED.core.walk(np.array([0]), 0), TypeError, []),
    ],
)
def test_wrong_input_is_named(call, error, message):
    refuses(error, call, *message)


TOKENS = np.array([3, 0, 1, 2])


@pytest.mark.parametrize("form", forms.IDS)
def test_tokens_in_every_form(form):
    model, tokens = example.model(), forms.IDS[form](TOKENS)
    np.testing.assert_array_equal(model.score(tokens, history=tokens), model.score(TOKENS, history=TOKENS))
    np.testing.assert_array_equal(model.walk(tokens).state, model.walk(TOKENS).state)
    assert model.start(tokens) == model.start(TOKENS)
    assert perplexity(model, [tokens]).overall() == perplexity(model, [TOKENS]).overall()
    made = [build([ids, ids], order=2, vocab_size=6, end_of_text=4) for ids in (tokens, TOKENS)]
    assert_same_model(*made)


def test_sizes_in_every_form():
    model = example.model()
    for form in forms.SIZES.values():
        assert model.step(form(1), form(2)) == model.step(1, 2)
        np.testing.assert_array_equal(model.distribution(form(1)), model.distribution(1))
        assert model.of_order(form(2)).order == 2 and model.widened(form(9)).vocab_size == 9
        assert NGram.uniform(form(3)).vocab_size == 3
    calls = {"state": model.distribution, "order": model.of_order, "vocab_size": NGram.uniform}
    for wrong in (*forms.NO_SIZES, -1, 2**40):
        for name, call in calls.items():
            with refused((TypeError, ValueError), name, "expected", wrong):
                call(wrong)


@pytest.fixture
def nine(tmp_path) -> Path:
    """The folder of a tokenizer of nine words."""
    pytest.importorskip("tokenizers")  # the wheels' own test has neither this nor transformers
    return cli.make_tokenizer(tmp_path / "tokenizer.json", 9).parent


def test_a_model_of_texts(nine):
    """Strings and a tokenizer, however it is given: as the ids that the tokenizer makes of them."""
    texts, file = [" w1 w2 w3 w2", " w1 w2", " w8"], str(nine / "tokenizer.json")
    plain = build([[1, 2, 3, 2], [1, 2], [8]], order=3, vocab_size=12, end_of_text=0)
    plainest = pytest.importorskip("tokenizers").Tokenizer.from_file(file)
    fast = pytest.importorskip("transformers").PreTrainedTokenizerFast(tokenizer_file=file)
    for tokenizer in (nine, file, TextTokenizer.open(nine), plainest, fast):
        model = build_ngram(iter(texts), tokenizer, order=3, vocab_size=12)
        assert_same_model(model, plain)
        assert model.end_of_text == 0 and model.words[:3] == TextTokenizer.open(nine).words()[:3]
    assert build_ngram(texts, nine, order=3, max_ngrams=10).info()["ngrams"][0] == 9


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"texts": "one text"}, TypeError, ["texts"]),
        ({"tokenizer": 7}, TypeError, ["tokenizer"]),
        ({"vocab_size": 8}, ValueError, ["vocab_size", "9", "8"]),
        ({"texts": []}, ValueError, ["least"]),
        ({"end_of_text": "<none>"}, ValueError, ["none"]),
    ],
)
def test_texts_that_no_model_is_made_of(nine, changes, error, message):
    refuses(error, lambda: build_ngram(**{"texts": [" w1"], "tokenizer": nine, "order": 2, **changes}), *message)


@pytest.fixture(params=[1, 2, 4])
def model(request) -> NGram:
    return NGram.from_tables(random_tables(request.param, request.param, vocab_size=V), words=list("abcdefg"))


@pytest.mark.parametrize("more", [V + 1, 300, 1 << 16, (1 << 16) + 1])
def test_known_ids_cost_what_they_cost_and_others_have_no_mass(model, more):
    wide = model.widened(more)
    assert model.widened(more) is wide and model.widened(V) is model
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
