"""Verification: right models pass, and each way of being wrong fails the check that it is for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import random_tables
from support.refusals import assert_named

from rescore.lm.build.estimate import with_backoff
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.model.compile import compile_tables
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables
from rescore.lm.model.verify import verify, verify_model


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_models_pass(seed, order):
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
    wrong = changed(arrays, name, at, other)
    try:
        model = NGram.from_arrays(wrong, order=order, vocab_size=6)
        model.core.check()
    except ValueError:
        return
    assert all(np.array_equal(*pair) for pair in zip(model.arrays, arrays))


@pytest.fixture(scope="module")
def trigrams():
    """1 2 3 and 1 2 1, in circles; (2 1) is a context that has no n-grams."""
    unigrams, bigrams = [[0], [1], [2], [3]], [[1, 2], [2, 1], [2, 3], [3, 1]]
    rows = [np.array(own, np.uint32) for own in (unigrams, bigrams, [[1, 2, 1], [1, 2, 3], [2, 3, 1], [3, 1, 2]])]
    cost = [np.full(4, np.log(4.0)), np.array([0.3, 1.2, 1.5, 0.4]), np.array([1.0, 1.1, 0.2, 0.5])]
    backoff = [np.zeros(4), np.array([0, 1.0, 0, 0])]
    return compile_tables(with_backoff(Tables.from_rows(rows, cost, backoff, vocab_size=4)))


def changed(arrays, name, at, value):
    values = getattr(arrays, name).copy()
    values[at] = value
    return arrays._replace(**{name: values})


@pytest.mark.parametrize(
    "name, at, value, words, named",
    [
        ("arc_cost", 0, 0.1, None, []),
        ("backoff_cost", 7, 9.0, None, ["(2 3)"]),
        ("backoff_cost", 7, 9.0, ("a", "b", "c", "d"), ["(2 3), 'cd'"]),
    ],
)
def test_sums(trigrams, name, at, value, words, named):
    """The worst context is named, with its words."""
    checks = verify_model(NGram.from_arrays(changed(trigrams, name, at, value), order=3, vocab_size=4, words=words))
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
def test_metadata(metadata, named):
    model = NGram.from_tables(random_tables(2, 2))
    last = verify_model(replace(model, metadata={**model.metadata, **metadata}))[-1]
    assert last.name == "metadata" and last.passed is False
    assert_named(last.found, named)


def test_files(tmp_path):
    NGram.from_tables(random_tables(2, 3)).save(tmp_path / "a.ngram")
    data = bytearray((tmp_path / "a.ngram").read_bytes())
    data[-100] ^= 1
    (tmp_path / "b.ngram").write_bytes(data)
    (check,) = verify(tmp_path / "b.ngram")
    assert (check.name, check.passed) == ("file", False)
    assert_named(check.found, ["checksum"])
