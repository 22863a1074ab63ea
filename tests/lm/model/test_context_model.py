"""The model of a running text against counting in dictionaries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refuses
from support.running_text import LEAST, Text

from rescore._core import ContextModel

VOCAB = 5
tokens = st.lists(st.integers(0, VOCAB - 1), max_size=40)
drafts = st.lists(st.integers(0, VOCAB - 1), max_size=5)
weights = st.tuples(st.floats(-4, 4), st.floats(-2, 2), st.floats(-3, 3))
ALL = np.arange(VOCAB, dtype=np.int32)
OTHER = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
SHARES = [(-0.5, 0.7, -0.8), (0.2, 1.1, -1.0), (-1.0, 0.5, 0.4), (0.5, 1.0, -1.5)]
PREDICTED = [(-2.0, 0.1, 0.5), (0.3, 0.6, -0.3), (0.1, 0.4, -0.2), (-0.3, 1.0, -0.9)]


def array(values):
    return np.array(values, np.int32)


def model_of(shares, predicted=None, copied=None):
    return ContextModel(shares=np.array(shares), predicted=np.array(predicted or shares), copied=copied)


@st.composite
def predictions(draw):
    """Up to three tokens, most probable first; some so improbable that they do not count."""
    of = draw(st.lists(st.integers(0, VOCAB - 1), max_size=3, unique=True))
    p = draw(st.lists(st.floats(0.0078125, 0.25, width=32), min_size=len(of), max_size=len(of)))
    return dict(zip(of, sorted(p, reverse=True)))


def foresee(model, draft, predicted, padding=1):
    ids = array([*predicted, *[-1] * padding])
    model.foresee(array(draft), ids, np.array([*predicted.values(), *[0] * padding], np.float32))


@st.composite
def texts(draw):
    """A model and its twin of a prompt, and a text with predictions after rejected drafts."""
    order = draw(st.integers(1, 6))
    shares, predicted = (draw(st.lists(weights, min_size=order, max_size=order)) for _ in range(2))
    text, copied = draw(tokens), draw(st.none() | weights)
    prompt = draw(st.integers(0, len(text)))
    model = model_of(shares, predicted, copied)
    twin = Text(text[:prompt], shares, predicted, copied=copied, prompt=prompt)
    model.extend(array(text[:prompt]), prompt=True)
    ends = sorted(draw(st.sets(st.integers(prompt, len(text)))) | {prompt, len(text)})
    for at, end in zip(ends, [*ends[1:], len(text)]):
        for draft in draw(st.lists(drafts, max_size=2)):
            foreseen = draw(predictions())
            foresee(model, draft, foreseen, padding=draw(st.integers(0, 2)))
            twin.foresee(draft, foreseen)
        model.extend(array(text[at:end]))
        twin.extend(text[at:end])
    return model, twin


def assert_same(model, twin, draft=(), abs=1e-6):
    assert model.size == len(twin.tokens)
    share, rest = model.mixture(array(draft), ALL)
    assert share + rest * OTHER == pytest.approx(twin.distribution(tuple(draft), OTHER), rel=1e-5, abs=abs)
    assert share.sum() + rest == pytest.approx(1, abs=1e-6)


@settings(max_examples=100)
@given(texts(), drafts)
def test_equals_counting(both, draft):
    model, twin = both
    assert model.order == len(twin.shares)
    assert_same(model, twin, draft)


@settings(max_examples=100)
@given(texts(), tokens.map(lambda text: text[:9]), st.booleans())
def test_evidence_is_what_was_counted_before_each_token(both, more, other):
    """Of another text nothing is counted."""
    model, twin = both
    known = model.evidence(array(more), other=other)
    assert known.shape == (len(more), model.order + 1, 2, 3) and known.dtype == np.float32
    for at, (token, one) in enumerate(zip(more, known)):
        assert one == pytest.approx(twin.evidence(tuple(more[:at]) if other else (), token, other=other), rel=1e-5)
        if not other:
            twin.extend([token])
    assert_same(model, twin)


def test_predictions_that_do_not_count():
    """Less than 0.01, as a single-precision number, and none at all."""
    model = model_of(SHARES, PREDICTED)
    model.extend(array([1, 2, 1]))
    before, rest = model.mixture(ALL[:0], ALL)
    foresee(model, (), {3: np.nextafter(LEAST, np.float32(0)), 4: 0.0})
    foresee(model, (), {})
    after = model.mixture(ALL[:0], ALL)
    assert before.tobytes() == after[0].tobytes() and rest == after[1]
    foresee(model, (), {3: LEAST})
    assert model.mixture(ALL[:0], array([3]))[0] > 0


@pytest.mark.parametrize("ids", [(3, 4, 5), (5, 3, 4), (3, 3, 5), (5, 3, 3)])
def test_predictions_in_any_order(ids):
    """And of a token that is named twice, whose probabilities add up."""
    p = {3: 0.5, 4: 0.25, 5: 0.125}
    of = np.array([p[token] for token in ids], np.float32)
    model = model_of(SHARES, PREDICTED)
    model.foresee(array(()), array(ids), of)
    counts = model.evidence(array([3]), other=True)[0, 0, 1]
    assert counts.tolist() == [p[3] * ids.count(3), of.sum(), len({*ids})]


def test_long_texts_of_one_token():
    model = model_of([(0.0, 1.0, -1.0)] * 4)
    model.extend(np.full(100_000, 7, np.int32))
    assert model.bytes < 10_000
    share, _ = model.mixture(ALL[:0], array([7, 8]))
    assert share.tolist() == pytest.approx([1, 0], abs=1e-4)


def test_many_predictions():
    """Contexts for which thousands of tokens were predicted; at most 1 KB for 8 predicted tokens."""
    draw = np.random.default_rng(1)
    size, vocab = 3000, 5000
    text = draw.integers(1, vocab, size).astype(np.int32)
    text[::2] = 0  # which anything follows
    ids = np.argsort(draw.random((size, 40)), axis=1)[:, :8].astype(np.int32) * 113
    p = -np.sort(-draw.dirichlet(np.ones(9), size)[:, :8], axis=1).astype(np.float32)
    model, twin = model_of(SHARES, PREDICTED), Text((), SHARES, PREDICTED)
    for token, draft, of, share in zip(text.tolist(), draw.integers(0, vocab, size).tolist(), ids, p):
        model.extend(array([token]))
        twin.extend([token])
        model.foresee(array([draft]), of, share)
        twin.foresee([draft], dict(zip(of.tolist(), share)))
    for draft in ((), (0,), (text[-3], 0)):
        share, _ = model.mixture(array(draft), np.arange(vocab, dtype=np.int32))
        assert share == pytest.approx(twin.distribution(tuple(draft), np.zeros(vocab)), rel=1e-5, abs=1e-7)
    assert model.bytes < 1000 * size


def test_more_tokens_than_a_float_counts():
    model = model_of([(0.0, 1.0, -1.0)], [(0.0, 0.0, 0.0)])
    model.extend(np.tile(array([0, 1, 2]), 5_700_000))
    share, rest = model.mixture(array([]), array([0, 1, 2]))
    assert share.sum() + rest == pytest.approx(1, abs=1e-6)


def test_what_is_no_text_separates_texts():
    shown, parts = (model_of(SHARES, PREDICTED, copied=(0.5, 0.2, 0.1)) for _ in range(2))
    shown.extend(array([-1, 1, 2, 3, 1, -1, -1, 2, 3, 1]))
    for text in ([1, 2, 3, 1], [2, 3, 1]):
        parts.begin()
        parts.extend(array(text))
    assert shown.size == 10
    for draft in ([], [2], [2, 3, 1]):
        for one, other in zip(shown.mixture(array(draft), ALL), parts.mixture(array(draft), ALL)):
            assert np.array_equal(one, other)


def test_misuse():
    refuses(ValueError, lambda: model_of([(0.0, 1.0, -1.0)] * 17), "16", "17")
    refuses(ValueError, lambda: ContextModel(shares=np.zeros((2, 2)), predicted=np.zeros((2, 3))), "shares", "3", "2")
    refuses(ValueError, lambda: ContextModel(shares=np.zeros((2, 3)), predicted=np.zeros((1, 3))), "2", "1")
    model, half = model_of(SHARES[:2]), np.array([0.5], np.float32)
    refuses(ValueError, lambda: model.extend(array([3, -2])), "tokens[1]", "-2")
    refuses(ValueError, lambda: model.evidence(array([3, -1])), "tokens[1]", "-1")
    none = np.array([0.5, np.nan], np.float32)
    refuses(ValueError, lambda: model.foresee(array([]), array([3, 1]), none), "nan", "p[1]")
    refuses(ValueError, lambda: model.foresee(array([]), array([3, 1]), half), "2", "1")
    refuses(ValueError, lambda: model.foresee(array([-2]), array([1]), half), "draft[0]", "-2")
    assert model.size == 0 and model.mixture(ALL[:0], ALL)[1] == 1  # nothing of what was refused
    refuses(TypeError, lambda: model.extend(np.array([1], np.int64)))


@settings(max_examples=60)
@given(drafts, st.lists(st.tuples(st.integers(0, 2), drafts, predictions()), max_size=12))
def test_siblings_read_what_any_of_them_counts(prompt, turns):
    """A text and two siblings take turns behind their prompt."""
    model, twin = model_of(SHARES, PREDICTED), Text(prompt, SHARES, PREDICTED, prompt=len(prompt))
    model.extend(array(prompt), prompt=True)
    models, twins = ([one, one.sibling(), one.sibling()] for one in (model, twin))
    for who, tokens, foreseen in turns:
        foresee(models[who], tokens, foreseen)
        twins[who].foresee(tokens, foreseen)
        models[who].extend(array(tokens[::-1]))
        twins[who].extend(tokens[::-1])
    for one, expected in zip(models, twins):
        for draft in ((), (1,), (2, 0)):
            assert_same(one, expected, draft, abs=2e-5)
