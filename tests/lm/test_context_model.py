"""The model of a running text against counting in dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.running_text import Text

from rescore._core import ContextModel

VOCAB = 5
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=40)
ALL = np.arange(VOCAB, dtype=np.int32)


def array(values):
    return np.array(values, np.int32)


@settings(max_examples=500)
@given(tokens, tokens.map(lambda t: t[:5]), st.lists(st.floats(0.1, 20), min_size=1, max_size=6), st.integers(1, 7))
def test_equals_counting(text, draft, strength, pieces):
    model = ContextModel(order=len(strength))
    for piece in np.array_split(array(text), pieces):  # however it comes
        model.extend(piece)
    assert model.size == len(text) and model.order == len(strength)
    share, rest = model.mixture(array(draft), np.array(strength), ALL)
    other = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
    assert share + rest * other == pytest.approx(Text(text, strength).distribution(tuple(draft), other), abs=1e-12)
    assert share.sum() + rest == pytest.approx(1)


def test_long_texts():
    """Tables grow; what came once each, and one token alone."""
    draw = np.random.default_rng(0)
    text = draw.integers(0, 3000, 20_000).astype(np.int32)
    model = ContextModel(order=4)
    model.extend(text)
    share, rest = model.mixture(text[:0], np.ones(4), np.arange(3000, dtype=np.int32))
    assert share == pytest.approx(Text(text.tolist(), np.ones(4)).distribution((), np.zeros(3000)), abs=1e-12)
    assert model.bytes < 200 * 4 * len(text)
    again = ContextModel(order=4)
    again.extend(np.full(1000, 7, np.int32))
    assert again.bytes < 50_000


def test_misuse():
    with pytest.raises(ValueError, match="order: expected 1 to 8, got 9"):
        ContextModel(order=9)
    model = ContextModel(order=2)
    with pytest.raises(ValueError, match=r"tokens\[1\]: expected a token id, got -1"):
        model.extend(array([3, -1]))
    assert model.size == 0  # nothing of what was refused
    with pytest.raises(TypeError):
        model.extend(np.array([1], np.int64))
    with pytest.raises(ValueError, match="strength, of every order: expected 2 entries, got 3"):
        model.mixture(array([]), np.ones(3), ALL)
