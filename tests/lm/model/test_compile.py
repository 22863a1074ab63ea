"""Tables, the plain arrays of their automaton, and its compact form: each is made of the others without a loss; right
ones pass verification, and each way of being wrong fails the check that it is for.
"""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import assert_same_tables
from support.oracle import models
from support.oracle_lm import Backoff, from_tables, random_history, random_tables, random_text
from support.refusals import assert_named, refused, refuses

from rescore import _core
from rescore.lm.build.in_memory import build
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.model import example
from rescore.lm.model.compile import Arrays, Compact, compile_tables, decompile
from rescore.lm.model.gram_rows import tables_of_ngrams, tables_of_rows
from rescore.lm.model.ngram import NGram
from rescore.lm.model.verify import verify, verify_model


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 5), st.randoms(use_true_random=False))
def test_missing_suffixes_are_filled_without_a_change_of_scores(seed, order, draw):
    full = from_tables(random_tables(seed, order, vocab_size=6, tokens=60))
    cost = dict(full.cost)
    for gram in sorted(full.cost):  # drop some n-grams that are no context of others
        if len(gram) > 1 and draw.random() < 0.4 and not any(o[: len(gram)] == gram and o != gram for o in cost):
            del cost[gram]
    grams = list(cost)
    draw.shuffle(grams)
    rows = [[g for g in grams if len(g) == n] for n in range(1, order + 1)]
    tables = tables_of_rows(
        [np.array(own, np.uint32).reshape(-1, n) for n, own in enumerate(rows, 1)],
        [np.array([cost[g] for g in own], np.float64) for own in rows],
        [np.array([full.backoff.get(g, 0.0) for g in own], np.float64) for own in rows[:-1]],
        vocab_size=6,
    )
    closed = from_tables(tables)
    holed = Backoff(cost, {context: b for context, b in full.backoff.items() if context in cost}, order, 6)
    assert all(g[1:] in closed.cost for g in closed.cost if len(g) > 1)
    for _ in range(40):
        *history, token = random_history(random.Random(draw.random()), 6, order + 1).tolist()
        assert closed.of(history, token) == pytest.approx(holed.of(history, token), abs=1e-9)


def test_rows_that_fit_no_model_are_named():
    unigrams = {(0,): (0.5, 1.0), (1,): (0.5, 1.0)}
    with refused(ValueError, "3-gram", "[0, 1, 0]"):
        tables_of_ngrams({**unigrams, (0, 0): (0.1, 1.0), (0, 1, 0): (0.1, 1.0)}, vocab_size=2)
    refuses(ValueError, lambda: tables_of_ngrams(unigrams, vocab_size=3), "unigrams", "3", "2", "unseen_cost")
    assert tables_of_ngrams(unigrams, vocab_size=3, unseen_cost=9.0).cost[0][2] == 9.0
    zero = [np.zeros(3), np.zeros(2)]
    rows = [np.array([[0], [1], [2]], np.uint32), np.array([[1, 2], [1, 2]], np.uint32)]
    refuses(ValueError, lambda: tables_of_rows(rows, zero, zero[:1], vocab_size=3), "2-gram", "[1, 2]")
    with refused(ValueError, "1-gram", "[1]"):
        tables_of_rows([np.array([[0], [1], [1]], np.uint32)], zero[:1], [], vocab_size=3)


def test_backoffs_of_n_grams_without_continuation_and_of_their_suffixes_stay():
    bigrams = {(0, 1): (0.2, 0.5), (2, 0): (0.3, 1.0), (0, 2): (0.1, 1.0), (2, 0, 2): (0.2, 1.0)}
    tables = tables_of_ngrams({(0,): (0.5, 1.0), (1,): (0.4, 1.0), (2,): (0.1, 1.0), **bigrams}, vocab_size=3)
    model = from_tables(tables)
    assert model.backoff[(0, 1)] == pytest.approx(-np.log(0.5))  # though nothing follows it, nor (1)
    assert model.of((0, 1), 1) == pytest.approx(-np.log(0.5 * 0.4))
    assert from_tables(decompile(compile_tables(tables), 3)).backoff == pytest.approx(model.backoff)


def changed(arrays, name, at, value):
    values = getattr(arrays, name).copy()
    values[at] = value
    return arrays._replace(**{name: values})


def automaton(arrays: Arrays, order: int, vocab_size: int, next_bits: int, choose_book=_core.exact_book):
    """As `Compact.from_arrays`, with codes of any number of low bits, and other codebooks."""
    layout = {"order": order, "vocab_size": vocab_size, "next_bits": next_bits}
    sizes, token, *others = _core.encode(*arrays, **layout, choose_book=choose_book)
    token = token.view(np.uint16) if vocab_size <= 1 << 16 else token
    return _core.Automaton(sizes.reshape(order, 6), arrays.arc_cost[:vocab_size].copy(), token, *others, **layout)


def assert_same(mine, theirs) -> None:
    for name, a, b in zip(Arrays._fields, mine, theirs, strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b), name


def assert_comes_back(arrays: Arrays, order: int, vocab_size: int, next_bits: int) -> _core.Automaton:
    made = automaton(arrays, order, vocab_size, next_bits)
    assert_same(made.plain(), arrays)
    made.check()
    return made


@settings(max_examples=80)
@given(
    st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 9), st.sampled_from([1, 2, 3, 5, 7, 8, 15]), st.booleans()
)
def test_all_come_back(seed, order, vocab_size, next_bits, wide):
    tables = random_tables(seed, order, vocab_size=vocab_size, tokens=150)
    if wide:  # the same n-grams over 32-bit tokens
        rows = [tables.spell(n) * 7000 for n in range(1, order + 1)]
        backoff = list(map(np.nan_to_num, tables.gram_backoffs()))
        tables = tables_of_rows(rows, tables.cost, backoff, vocab_size=70_000, unseen_cost=20.0)
    arrays = compile_tables(tables)
    assert arrays.arc_token.dtype == (np.uint32 if wide else np.uint16)
    assert_same_tables(decompile(arrays, order), tables)
    assert_comes_back(arrays, order, tables.vocab_size, next_bits)


@settings(max_examples=60)
@given(models(5), st.integers(1, 3))
def test_contexts_without_arcs_come_back(lm, next_bits):
    assert_comes_back(lm.arrays(), lm.order, lm.vocab_size, next_bits)


@pytest.mark.parametrize("next_bits", [1, 7, 15])
def test_long_sequences(next_bits):
    """Many states: several samples, words and jumps of each sequence, and long lists beside empty ones."""
    text = random_text(3, 300, 6000)
    arrays = compile_tables(build([text, [5, *range(300)] * 2], order=4, vocab_size=300, end_of_text=0).to_tables())
    assert len(arrays.backoff_state) > 4000
    assert_comes_back(arrays, 4, 300, next_bits)


def one_context(cost: np.ndarray) -> Arrays:
    """A bigram model whose one context, token 0, has an arc of each of these costs."""
    size = len(cost)
    after = np.zeros(size, np.uint32)
    after[0] = 1
    return Arrays(
        arc_begin=np.array([0, size, 2 * size], np.uint64),
        arc_token=np.tile(np.arange(size, dtype=np.uint16), 2),
        arc_cost=np.concatenate([np.ones(size, np.float32), cost]),
        arc_next=np.tile(after, 2),
        backoff_state=np.zeros(2, np.uint32),
        backoff_cost=np.array([0, 0.5], np.float32),
    )


@pytest.mark.parametrize("distinct, book_bytes", [(1, 1), (3, 1), (256, 1), (257, 2), (5000, 2), (15_001, 4)])
def test_books_are_exact(distinct, book_bytes):
    """Costs have an exact codebook, unless more than three quarters as many as arcs are distinct."""
    draw = np.random.default_rng(1)
    known = np.arange(distinct, dtype=np.float32) * np.finfo(np.float32).eps / 2 + np.float32(0.5)
    cost = np.concatenate([known, draw.choice(known, 30_000 - distinct)])
    draw.shuffle(cost)
    arrays = one_context(cost)
    lm = Compact.from_arrays(arrays, order=2, vocab_size=len(cost))
    assert lm.sizes[1, 1:3].tolist() == [book_bytes, distinct if book_bytes < 4 else 0]
    assert np.array_equal(lm.arc_book, known if book_bytes < 4 else [])
    assert_same(automaton(arrays, 2, len(cost), 15).plain(), arrays)


def test_rounding():
    """To the nearest of the book, but nothing else to 0."""
    cost = np.array([-3, -0.1, 0, 0.1, 0.6, 1.4, 9, 0], np.float32)
    for book, rounded in (
        ([0, 1, 2], [1, 1, 0, 1, 1, 1, 2, 0]),
        ([-1, 0, 1], [-1, -1, 0, 1, 1, 1, 1, 0]),
        ([0], [0] * 8),
    ):
        books = {8: np.array(book, np.float32)}  # by the number of costs
        lm = automaton(one_context(cost), 2, 8, 7, lambda costs, books=books: books.get(len(costs), costs[:0].copy()))
        assert lm.plain()[2][8:].tolist() == rounded


def test_long_lists():
    """Contexts that together have more than 2^16 arcs: where they begin does not fit into their block."""
    vocab_size, states = 10_000, 25
    after = np.where(np.arange(vocab_size) < states, np.arange(vocab_size) + 1, 0).astype(np.uint32)
    draw = np.random.default_rng(3)
    has = draw.random((states, vocab_size)) < np.linspace(0, 1.2, states)[:, None]
    token = np.concatenate([np.arange(vocab_size), *(np.flatnonzero(own) for own in has)])
    begin = np.concatenate([[0, vocab_size], vocab_size + np.cumsum(has.sum(axis=1))])
    arrays = Arrays(
        arc_begin=begin.astype(np.uint64),
        arc_token=token.astype(np.uint16),
        arc_cost=draw.random(len(token), np.float32),
        arc_next=after[token],
        backoff_state=np.zeros(states + 1, np.uint32),
        backoff_cost=np.concatenate([[0], draw.random(states)]).astype(np.float32),
    )
    made = Compact.from_arrays(arrays, order=2, vocab_size=vocab_size)
    assert len(made.wide) == 11 and made.wide[0] == begin[11] - vocab_size  # of three blocks of ten the second
    lm = assert_comes_back(arrays, 2, vocab_size, 15)
    for state in (1, 12, 19, 25):
        own = slice(begin[state], begin[state + 1])
        cost = arrays.backoff_cost[state] + arrays.arc_cost[:vocab_size]
        cost[token[own]] = arrays.arc_cost[own]
        np.testing.assert_allclose(lm.distribution(state), cost, rtol=1e-6)


def test_quantised():
    model = build([random_text(5, 60, 30_000)], order=3, vocab_size=60, end_of_text=0, metadata={"tokenizer": "abc"})
    small = model.quantised()
    small.core.check()
    assert small.metadata["quantised"] == small.info()["quantised"] == 256 and small.metadata["tokenizer"] == "abc"
    assert small.info()["bytes_per_ngram"] < 0.75 * model.info()["bytes_per_ngram"]
    a, b = model.arrays, small.arrays
    assert_same(b._replace(arc_cost=a.arc_cost, backoff_cost=a.backoff_cost), a)
    assert np.array_equal(a.arc_cost[:60], b.arc_cost[:60])
    assert np.array_equal(b.backoff_cost == 0, a.backoff_cost == 0)
    assert np.abs(a.arc_cost - b.arc_cost).max() < np.ptp(a.arc_cost[60:]) / 128
    assert np.abs(a.backoff_cost - b.backoff_cost).max() < np.ptp(a.backoff_cost) / 128
    assert_same(small.quantised().arrays, b)
    assert_same(NGram.from_tables(small.to_tables()).arrays, b)
    certain = {(0,): (0.5, 1.0), (1,): (0.5, 1.0), (0, 1): (1.0, 1.0)}
    certain = NGram.from_tables(tables_of_ngrams(certain, vocab_size=2))
    assert_same(certain.quantised().arrays, certain.arrays)


@pytest.mark.parametrize(
    "name, index, value, message",
    [
        ("backoff_state", "last", 0, ["backoff_state["]),
        ("backoff_state", 0, 1, ["backoff_state[0]", "1"]),
        ("arc_begin", 2, 2**40, ["arc_begin[3]"]),
        ("arc_token", 3, 4, ["arc_token[3]", "9", "4"]),
        ("arc_next", 1, 0, ["arc_next"]),
        ("arc_next", -1, 1, ["arc_next[", "1"]),
        ("arc_token", -1, 8, ["arc_token[", "8"]),
    ],
)
def test_wrong_order_is_refused(name, index, value, message):
    good = compile_tables(random_tables(2, 3))
    at = np.flatnonzero(np.diff(good.backoff_state.astype(int)) > 0)[-1] + 1 if index == "last" else index
    bad = changed(good, name, at, value)
    refuses(ValueError, lambda: Compact.from_arrays(bad, order=3, vocab_size=9), *message)


def test_wrong_sizes_are_refused():
    good = compile_tables(random_tables(2, 3))
    for name in ("arc_cost", "arc_next", "backoff_state", "backoff_cost"):
        with refused(ValueError, name):
            Compact.from_arrays(good._replace(**{name: getattr(good, name)[:-1]}), order=3, vocab_size=9)
    refuses(ValueError, lambda: Compact.from_arrays(good, order=2, vocab_size=9), "backoff_state", "1")
    refuses(ValueError, lambda: Compact.from_arrays(good, order=3, vocab_size=8), "arc_begin", "8")
    refuses(ValueError, lambda: automaton(good, 3, 9, 16), "next_bits", "15", "16")
    with refused(ValueError, "book", "65536", "70000"):
        automaton(good, 3, 9, 7, lambda costs: np.arange(70_000, dtype=np.float32))


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_right_models_pass(seed, order):
    tables = random_tables(seed, order, vocab_size=7, tokens=80)
    for own in (tables, prune(tables, PruneOptions(theta=0.01))):
        model = NGram.from_tables(own, metadata={"end_of_text": 0, "tokenizer": "x"})
        checks = verify_model(model)
        assert [check.name for check in checks] == ["automaton", "sums to one", "metadata"]
        assert all(check.passed for check in checks), checks


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from(["arc_next", "backoff_state"]), st.data())
def test_no_other_state_passes(seed, order, name, data):
    """Next and backoff states follow from the n-grams, so that any other one is wrong, and is not stored."""
    arrays = compile_tables(random_tables(seed, order, vocab_size=6, tokens=50))
    at = data.draw(st.integers(1 if name == "backoff_state" else 0, len(getattr(arrays, name)) - 1))
    other = data.draw(st.integers(0, len(arrays.backoff_state) - 1))
    try:
        model = NGram.from_arrays(changed(arrays, name, at, other), order=order, vocab_size=6)
        model.core.check()
    except ValueError:
        return
    assert all(np.array_equal(*pair) for pair in zip(model.arrays, arrays))


@pytest.mark.parametrize(
    "name, at, value, words, named",
    [
        ("arc_cost", 0, 0.1, None, []),
        ("backoff_cost", 4, 9.0, None, ["(0 1)"]),
        ("backoff_cost", 4, 9.0, example.WORDS, ["(0 1), 'LionelMessi'"]),
    ],
)
def test_wrong_sums_fail(name, at, value, words, named):
    """The worst context is named, with its words."""
    arrays = changed(example.model().arrays, name, at, value)
    checks = verify_model(NGram.from_arrays(arrays, order=3, vocab_size=6, words=words))
    assert [check.passed for check in checks] == [True, False, None] and checks[1].name == "sums to one"
    assert_named(checks[1].found, named)


@pytest.mark.filterwarnings("error")
@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.data())
def test_sums_are_those_of_the_distributions(seed, order, data):
    """With costs of any size that files may hold, and without warnings."""
    arrays = compile_tables(random_tables(seed, order, vocab_size=6, tokens=50))
    for name, sizes in (("arc_cost", [0, 89, 2e6]), ("backoff_cost", [-2e6, -800, -89, 3, 2e6]))[: min(order, 2)]:
        few = data.draw(st.lists(st.integers(1, len(getattr(arrays, name)) - 1), max_size=4))
        values = data.draw(st.lists(st.sampled_from(sizes), min_size=len(few), max_size=len(few)))
        arrays = changed(arrays, name, few, values)
    model = NGram.from_arrays(arrays, order=order, vocab_size=6)
    with np.errstate(over="ignore"):
        costs = [model.distribution(state).astype(np.float64) for state in range(model.core.num_states)]
        right = all(abs(np.exp(-cost).sum() - 1) <= 1e-4 for cost in costs)
    assert (verify_model(model)[1].passed is True) == right


@pytest.mark.filterwarnings("error")
def test_the_reference_file_fails_without_warnings(shared):
    checks = verify(shared / "reference" / "hostile" / "verify_warning.ngram")
    assert [check.name for check in checks if check.passed is False] == ["sums to one"]


def test_quantised_models_pass_with_their_own_tolerance():
    model = NGram.from_tables(random_tables(5, 3, vocab_size=60, tokens=4000)).quantised()
    assert all(check.passed for check in verify_model(model))
    assert [check.name for check in verify_model(model, tolerance=1e-9) if check.passed is False] == ["sums to one"]


@pytest.mark.parametrize(
    "metadata, named",
    [
        ({"end_of_text": 9}, ["end_of_text", "0..8", "9"]),
        ({"bos": True}, ["bos", "0..8", "True"]),
        ({"tokenizer": 5}, ["tokenizer", "5"]),
        ({"ngrams": [1, 2]}, ["ngrams", "[9, ", "[1, 2]"]),
    ],
)
def test_wrong_metadata_fail(metadata, named):
    model = NGram.from_tables(random_tables(2, 2))
    last = verify_model(replace(model, metadata={**model.metadata, **metadata}))[-1]
    assert last.name == "metadata" and last.passed is False
    assert_named(last.found, named)


def test_damaged_files_fail(tmp_path):
    NGram.from_tables(random_tables(2, 3)).save(tmp_path / "a.ngram")
    data = bytearray((tmp_path / "a.ngram").read_bytes())
    data[-100] ^= 1
    (tmp_path / "b.ngram").write_bytes(data)
    (check,) = verify(tmp_path / "b.ngram")
    assert (check.name, check.passed) == ("file", False)
    assert_named(check.found, ["checksum"])
