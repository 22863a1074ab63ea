"""Weights tuned on text, against grids of weights and texts whose best weights are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import from_tables, random_tables, random_text
from support.refusals import refuses

from rescore.lm.build.heldout import HeldOut
from rescore.lm.build.interpolate import interpolate
from rescore.lm.build.tuning import tune_mixture
from rescore.lm.model.ngram import NGram
from rescore.lm.model.perplexity import perplexity
from rescore.lm.model.tables import Tables

V = 6


def models(seed: int, count: int = 2) -> list[NGram]:
    return [
        NGram.from_tables(random_tables(seed + 17 * j, 1 + (seed + j) % 3, vocab_size=V, tokens=50))
        for j in range(count)
    ]


def dynamic_nats(made, weights, text, log_linear) -> float:
    """Of a mixture that looks every word up in all models."""
    slow, total = [from_tables(model.to_tables()) for model in made], 0.0
    for at, token in enumerate(text):
        p = np.array([[math.exp(-model.of(text[:at], word)) for word in range(V)] for model in slow])
        mixed = np.prod(p ** np.array(weights)[:, None], axis=0) if log_linear else np.array(weights) @ p
        total -= math.log(mixed[token] / mixed.sum())
    return total


def unigrams(p) -> NGram:
    return NGram.from_tables(
        Tables.from_ngrams({(token,): (own, 1.0) for token, own in enumerate(p)}, vocab_size=len(p))
    )


def test_known_optimum_linear():
    """Text drawn exactly as 0.3 of one model and 0.7 of another."""
    a, b = [0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6]
    text = np.repeat(np.arange(4), np.round(1000 * (0.3 * np.array(a) + 0.7 * np.array(b))).astype(int))
    found = tune_mixture([unigrams(a), unigrams(b)], [text])
    assert found.mixture.weights == pytest.approx((0.3, 0.7), abs=1e-4)
    assert sum(found.mixture.weights) == pytest.approx(1, abs=1e-12)
    assert found.tokens == 1000 and found.nats < found.equal < min(found.alone)


def test_known_optimum_log_linear():
    """Text drawn exactly in proportion to p_a ** 1.5 * p_b ** 0.25: then the gradient is 0 there."""
    a, b = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.1, 0.2, 0.6])
    mixed = a**1.5 * b**0.25
    text = np.repeat(np.arange(4), np.round(10**6 * mixed / mixed.sum()).astype(int))
    found = tune_mixture([unigrams(a), unigrams(b)], [text], log_linear=True)
    assert found.mixture.weights == pytest.approx((1.5, 0.25), abs=5e-3)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.booleans())
def test_no_other_weights_are_better(seed, log_linear):
    made, text = models(seed), random_text(seed + 5, V, 60)
    found = tune_mixture(made, [text[:20], text[20:]], log_linear=log_linear)
    assert found.nats == pytest.approx(dynamic_nats(made, found.mixture.weights, text, log_linear), rel=1e-4)
    assert found.equal == pytest.approx(dynamic_nats(made, (0.5, 0.5), text, log_linear), rel=1e-4)
    assert found.alone == pytest.approx([dynamic_nats(made, own, text, False) for own in ((1, 0), (0, 1))], rel=1e-4)
    grid = np.linspace(0, 1, 6)
    for share in grid:
        for power in (1,) if not log_linear else (0.5, 1, 1.5):
            other = (power * share, power * (1 - share))
            assert dynamic_nats(made, other, text, log_linear) > found.nats - 1e-3 * len(text)


@settings(max_examples=10)
@given(st.integers(0, 10**6))
def test_slope_and_curve_are_those_of_differences(seed):
    made, text, small = models(seed, 3), random_text(seed + 5, V, 60), 1e-5
    total = np.array([model.score(text).astype(float).sum() for model in made])
    held = HeldOut.of([model.to_tables() for model in made], total, [text], None)
    at = np.array([0.5, 0.2, 0.7])
    found = held.nats(at)
    moved = [(held.nats(at + step), held.nats(at - step)) for step in small * np.eye(3)]
    np.testing.assert_allclose(
        found.slope, [(up.value - down.value) / (2 * small) for up, down in moved], rtol=1e-4, atol=1e-4
    )
    np.testing.assert_allclose(
        found.curve, [(up.slope - down.slope) / (2 * small) for up, down in moved], rtol=1e-4, atol=1e-4
    )


def test_log_linear_nats_are_those_of_the_merged_model():
    made, text = models(4), random_text(9, V, 80)
    found = tune_mixture(made, [text], end_of_text=0, log_linear=True)
    merged = NGram.from_tables(interpolate([model.to_tables() for model in made], found.mixture))
    assert found.nats == pytest.approx(perplexity(merged, [text], end_of_text=0).overall()["nats"], rel=1e-5)


def test_the_same_model_twice():
    made, text = models(4)[:1] * 2, random_text(9, V, 80)
    assert sorted(tune_mixture(made, [text]).mixture.weights) == [0, 1]
    found = tune_mixture(made, [text], log_linear=True)
    assert found.nats <= found.equal and all(weight >= 0 for weight in found.mixture.weights)


def test_a_useless_model_gets_no_weight():
    a, b = unigrams([0.5, 0.3, 0.2]), unigrams([0.2, 0.2, 0.6])
    for log_linear in (False, True):
        found = tune_mixture([a, b], [np.repeat([0, 1], [90, 10])], log_linear=log_linear)
        assert found.mixture.weights[1] == 0


@pytest.mark.parametrize("texts", [[], [[]]])
def test_no_text_is_refused(texts):
    refuses(ValueError, lambda: tune_mixture(models(1), texts), "weights")
