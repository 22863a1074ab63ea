"""Weights tuned on text, against grids of weights and texts whose best weights are known."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import from_tables, random_tables, random_text
from support.refusals import refuses

from rescore.lm.build.tuning import tune_mixture
from rescore.lm.model.ngram import NGram

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


@pytest.mark.parametrize("texts", [[], [[]]])
def test_no_text_is_refused(texts):
    refuses(ValueError, lambda: tune_mixture(models(1), texts), "weights")
