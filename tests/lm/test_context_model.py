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
OTHER = np.array([0.4, 0.3, 0.2, 0.1, 0.0])


def array(values):
    return np.array(values, np.int32)


def hard(order):
    return ContextModel(soft=np.zeros(order))


@st.composite
def predictions(draw):
    """Up to three tokens, most probable first; of some, so little that it does not count."""
    of = draw(st.lists(st.integers(0, VOCAB - 1), max_size=3, unique=True))
    p = draw(st.lists(st.floats(0.0078125, 0.25, width=32), min_size=len(of), max_size=len(of)))
    return dict(zip(of, sorted(p, reverse=True)))


def rows(predicted, k=4):
    ids, p = np.full((len(predicted), k), -1, np.int32), np.zeros((len(predicted), k), np.float32)
    for i, one in enumerate(predicted):
        ids[i, : len(one)], p[i, : len(one)] = list(one), list(one.values())
    return {"ids": ids, "p": p}


@settings(max_examples=500)
@given(tokens, tokens.map(lambda t: t[:5]), st.lists(st.floats(0.1, 20), min_size=1, max_size=6), st.integers(1, 7))
def test_equals_counting(text, draft, strength, pieces):
    model = hard(len(strength))
    for piece in np.array_split(array(text), pieces):  # however it comes
        model.extend(piece)
    assert model.size == len(text) and model.order == len(strength)
    share, rest = model.mixture(array(draft), np.array(strength), ALL)
    assert share + rest * OTHER == pytest.approx(Text(text, strength).distribution(tuple(draft), OTHER), abs=1e-12)
    assert share.sum() + rest == pytest.approx(1)


@settings(max_examples=500)
@given(st.data())
def test_soft_counts_equal_counting(data):
    """Predictions along the text, and behind drafts that were verified."""
    text = data.draw(tokens)
    predicted = [data.draw(predictions()) for _ in text]
    order = data.draw(st.integers(1, 6))
    strength = data.draw(st.lists(st.floats(0.1, 20), min_size=order, max_size=order))
    soft = data.draw(st.lists(st.floats(0, 1), min_size=order, max_size=order))
    model, twin = ContextModel(soft=np.array(soft)), Text((), strength, [], soft)
    at = 0
    while at < len(text):
        for draft in data.draw(st.lists(tokens.map(lambda t: t[:4]), max_size=2)):
            foreseen = data.draw(predictions())
            model.foresee(array(draft), **rows([foreseen]))
            twin.foresee(draft, foreseen)
        end = min(len(text), at + data.draw(st.integers(1, 10)))
        model.extend(array(text[at:end]), **rows(predicted[at:end]))
        twin.extend(twin.tokens, text[at:end], predicted[at:end])
        at = end
    draft = data.draw(tokens)[:5]
    share, rest = model.mixture(array(draft), np.array(strength), ALL)
    assert share + rest * OTHER == pytest.approx(twin.distribution(tuple(draft), OTHER), abs=1e-6)
    assert share.sum() + rest == pytest.approx(1, abs=1e-6)


def test_long_texts():
    """Tables grow; what came once each, and one token alone."""
    draw = np.random.default_rng(0)
    text = draw.integers(0, 3000, 20_000).astype(np.int32)
    model = hard(4)
    model.extend(text)
    share, rest = model.mixture(text[:0], np.ones(4), np.arange(3000, dtype=np.int32))
    assert share == pytest.approx(Text(text.tolist(), np.ones(4)).distribution((), np.zeros(3000)), abs=1e-12)
    assert model.bytes < 60 * 4 * len(text)
    again = hard(4)
    again.extend(np.full(100_000, 7, np.int32))
    assert again.bytes < 10_000
    share, rest = again.mixture(text[:0], np.ones(4), array([7, 8]))
    assert share.tolist() == pytest.approx([1, 0], abs=1e-4)


def test_soft_counts_of_long_texts():
    """Contexts with thousands of followers; at most 1 KB a token, with 8 tokens predicted at each position."""
    draw = np.random.default_rng(1)
    size, vocab, strength, soft = 10_000, 5000, np.ones(6), [0.0, 0.75, 0.7, 0.4, 0.4, 0.2]
    text = draw.integers(1, vocab, size).astype(np.int32)
    text[::2] = 0  # which anything follows
    ids = np.argsort(draw.random((size, 40)), axis=1)[:, :8].astype(np.int32) * 113
    p = -np.sort(-draw.dirichlet(np.ones(9), size)[:, :8], axis=1).astype(np.float32)
    model = ContextModel(soft=np.array(soft))
    model.extend(text, ids, p)
    twin = Text(text.tolist(), strength, [dict(zip(*row)) for row in zip(ids.tolist(), p.tolist())], soft)
    for draft in ((), (0,), (text[-3], 0)):
        share, _ = model.mixture(array(draft), strength, np.arange(vocab, dtype=np.int32))
        assert share == pytest.approx(twin.distribution(tuple(draft), np.zeros(vocab)), abs=1e-6)
    assert model.bytes < 1000 * size


def test_misuse():
    with pytest.raises(ValueError, match="soft, of every order: expected 1 to 16, got 17"):
        hard(17)
    with pytest.raises(ValueError, match=r"soft\[1\]: expected a number in \[0, 1\], got 1.5"):
        ContextModel(soft=np.array([0, 1.5]))
    model = hard(2)
    with pytest.raises(ValueError, match=r"tokens\[1\]: expected a token id, got -1"):
        model.extend(array([3, -1]))
    with pytest.raises(ValueError, match=r"p\[1, 0\]: expected a probability, got nan"):
        model.extend(array([3, 1]), array([[1], [2]]), np.array([[0.5], [np.nan]], np.float32))
    with pytest.raises(ValueError, match="ids, one row of each position: expected 2 entries, got 1"):
        model.extend(array([3, 1]), array([[1]]), np.ones((1, 1), np.float32))
    with pytest.raises(TypeError, match="ids and p: expected both, or neither"):
        model.extend(array([3, 1]), array([[1]]))
    with pytest.raises(ValueError, match=r"draft\[0\]: expected a token id, got -2"):
        model.foresee(array([-2]), array([[1]]), np.ones((1, 1), np.float32))
    assert model.size == 0  # nothing of what was refused
    with pytest.raises(TypeError):
        model.extend(np.array([1], np.int64))
    with pytest.raises(ValueError, match="strength, of every order: expected 2 entries, got 3"):
        model.mixture(array([]), np.ones(3), ALL)
