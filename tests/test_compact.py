"""The compact form of an automaton against the plain arrays that it was made of, whatever the number of low bits."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import models
from oracle_lm import from_tables, random_history, random_tables, random_text

from rescore import _core
from rescore.lm.arpa import ArpaOptions, read_arpa, write_arpa
from rescore.lm.build import build
from rescore.lm.compact import Compact
from rescore.lm.compile import Arrays, compile_tables
from rescore.lm.ngram import NGram
from rescore.lm.quantise import codebook
from rescore.lm.tables import Tables


def automaton(arrays: Arrays, order: int, vocab_size: int, code_bytes: int, next_bits: int) -> _core.Automaton:
    """As `Compact.from_arrays`, with codes of fewer low bits than fit."""
    made = Compact.from_arrays(arrays, order=order, vocab_size=vocab_size)
    encoded = _core.encode_structure(
        arrays.arc_begin, arrays.arc_token, arrays.arc_next, arrays.backoff_state,
        order=order, vocab_size=vocab_size, code_bytes=code_bytes, next_bits=next_bits,
    )  # fmt: skip
    made = made._replace(arc_next=encoded[3] if code_bytes == 1 else encoded[3].view(np.uint16), jumps=encoded[5])
    return _core.Automaton(**made.sections, order=order, vocab_size=vocab_size, next_bits=next_bits)


def assert_same(mine, theirs) -> None:
    for name, a, b in zip(Arrays._fields, mine, theirs, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b), name


def widened(tables: Tables, step: int, vocab_size: int) -> Tables:
    """The same n-grams over larger ids."""
    rows = [tables.spell(n) * step for n in range(1, tables.order + 1)]
    return Tables.from_rows(rows, tables.cost, list(map(np.nan_to_num, tables.gram_backoffs())), vocab_size=vocab_size, unseen_cost=20.0)


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 9), st.integers(1, 5), st.sampled_from([1, 2]))
def test_plain_arrays_come_back(seed, order, vocab_size, next_bits, code_bytes):
    arrays = compile_tables(random_tables(seed, order, vocab_size=vocab_size, tokens=150))
    lm = automaton(arrays, order, vocab_size, code_bytes, next_bits)
    assert_same(lm.plain(), arrays)
    lm.check()


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([65536, 65537, 70_000]))
def test_wide_tokens_come_back(seed, order, vocab_size):
    tables = widened(random_tables(seed, order, tokens=80), 7000, vocab_size)
    arrays, model, slow = compile_tables(tables), NGram.from_tables(tables), from_tables(tables)
    assert_same(model.core.plain(), arrays)
    model.core.check()
    draw = random.Random(seed)
    history, tokens = (random_history(draw, 9, 8) * 7000 for _ in range(2))
    text = [*history.tolist(), *tokens.tolist()]
    expected = [slow.of(text[: 8 + i], token) for i, token in enumerate(tokens.tolist())]
    np.testing.assert_allclose(model.score(tokens, history=history), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=60)
@given(models(5), st.integers(1, 3))
def test_contexts_without_arcs_come_back(lm, next_bits):
    arrays = lm.arrays()
    made = automaton(arrays, lm.order, lm.vocab_size, 2, next_bits)
    assert_same(made.plain(), arrays)
    made.check()


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_arpa_models_come_back(tmp_path_factory, seed, order):
    path = tmp_path_factory.mktemp("arpa") / "model.arpa"
    write_arpa(NGram.from_tables(random_tables(seed, order, vocab_size=6, tokens=60)), path)
    model = read_arpa(path, ArpaOptions(vocab_size=6))
    model.core.check()
    assert_same(model.arrays, compile_tables(model.to_tables()))


@pytest.mark.parametrize("next_bits", [1, 3, 5, 14])
def test_long_sequences(next_bits):
    """Many states: several samples, words and jumps of each sequence, and long lists beside empty ones."""
    text = random_text(3, 300, 6000)
    arrays = compile_tables(build([text, [5, *range(300)] * 2], order=4, vocab_size=300, eot=0).to_tables())
    assert len(arrays.backoff_state) > 4000
    lm = automaton(arrays, 4, 300, 2, next_bits)
    assert_same(lm.plain(), arrays)
    lm.check()


def test_books_are_exact():
    draw = np.random.default_rng(1)
    for distinct in (1, 2, 3, 200, 5000):
        cost = draw.choice(draw.random(distinct).astype(np.float32), 20_000)
        bits, data, book = _core.encode_costs(cost, np.zeros(0, np.float32))
        assert bits == max(len(np.unique(cost)) - 1, 0).bit_length() and np.array_equal(book, np.unique(cost))
        codes = np.unpackbits(data, bitorder="little")[: 20_000 * bits].reshape(20_000, bits)
        assert np.array_equal(book[codes @ (1 << np.arange(bits))], cost)
    cost = draw.random(20_000).astype(np.float32)
    for odd in (cost, np.where(cost < 0.5, np.float32(-0.0), np.float32(0)), np.full(9, np.nan, np.float32)):
        bits, data, book = _core.encode_costs(odd, np.zeros(0, np.float32))
        if bits == 32:
            assert len(book) == 0 and data[: 4 * len(odd)].tobytes() == odd.tobytes()


def test_rounding():
    cost = np.array([-3, -0.1, 0, 0.1, 0.6, 1.4, 9, 0], np.float32)
    for book, rounded in (([0, 1, 2], [1, 1, 0, 1, 1, 1, 2, 0]), ([-1, 0, 1], [-1, -1, 0, 1, 1, 1, 1, 0]), ([-1, 0], [-1, -1, 0, -1, -1, -1, -1, 0]), ([0], [0] * 8)):
        bits, data, kept = _core.encode_costs(cost, np.array(book, np.float32))
        assert bits == 8 and kept[data[:8]].tolist() == rounded


def test_quantised():
    model = build([random_text(5, 60, 30_000)], order=3, vocab_size=60, eot=0, metadata={"tokenizer": "abc"})
    small = model.quantised()
    small.core.check()
    assert small.metadata["quantised"] == 256 and small.info()["quantised"] == 256 and small.metadata["tokenizer"] == "abc"
    assert small.info()["bytes_per_ngram"] < 0.75 * model.info()["bytes_per_ngram"]
    a, b = model.arrays, small.arrays
    for name in ("arc_begin", "arc_token", "arc_next", "backoff_state"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
    assert np.array_equal(a.arc_cost[:60], b.arc_cost[:60])
    assert np.array_equal(b.backoff_cost == 0, a.backoff_cost == 0)
    assert np.abs(a.arc_cost - b.arc_cost).max() < np.ptp(a.arc_cost[60:]) / 128
    assert np.abs(a.backoff_cost - b.backoff_cost).max() < np.ptp(a.backoff_cost) / 128
    assert_same(small.quantised().arrays, b)
    assert_same(NGram.from_tables(small.to_tables()).arrays, b)


@settings(max_examples=60)
@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=400), st.integers(2, 256))
def test_codebooks(costs, bins):
    cost = np.array(costs, np.float32) + np.float32(0)
    book = codebook(cost, bins)
    assert 1 <= len(book) <= bins and (np.diff(book) > 0).all() and book.dtype == np.float32
    assert 0 in book or not (cost == 0).any()
    found = np.unique(cost)
    nearest = np.abs(cost[:, None] - book).min(axis=1)
    if len(found) <= bins:
        assert nearest.max() == 0
    elif bins > 8:
        assert nearest.max() <= 2 * np.ptp(cost) / (bins / 2 - 2) + 1e-5


def test_wrong_order_is_refused():
    good = compile_tables(random_tables(2, 3))
    states = np.flatnonzero(np.diff(good.backoff_state.astype(int)) > 0) + 1
    for name, index, value, message in [
        ("backoff_state", states[-1], 0, r"backoff_state\[\d+\]: expected states that ascend below"),
        ("backoff_state", 0, 1, r"backoff_state\[0\]: expected the root to back off to itself, got 1"),
        ("arc_begin", 2, 2**40, r"arc_begin\[3\]: expected offsets that ascend"),
        ("arc_token", 3, 4, r"arc_token\[3\]: expected a token below 9, for the root its number, got 4"),
        ("arc_next", 1, 0, "arc_next: expected one arc to each of the"),
        ("arc_next", 30, 2**31, "arc_next"),
    ]:
        bad = getattr(good, name).copy()
        bad[index] = value
        with pytest.raises(ValueError, match=message):
            Compact.from_arrays(good._replace(**{name: bad}), order=3, vocab_size=9)
    with pytest.raises(ValueError, match="costs: expected .* of arcs and .* of states, got"):
        Compact.from_arrays(good._replace(arc_cost=good.arc_cost[:-1]), order=3, vocab_size=9)
    with pytest.raises(ValueError, match="backoff_state: expected contexts of at most 1 tokens"):
        Compact.from_arrays(good, order=2, vocab_size=9)
    with pytest.raises(ValueError, match="arc_begin: expected the root's arcs to be one for each of the 8 tokens"):
        Compact.from_arrays(good, order=3, vocab_size=8)
    with pytest.raises(ValueError, match="next_bits: expected 1 to 6, got 7"):
        automaton(good, 3, 9, 1, 7)
