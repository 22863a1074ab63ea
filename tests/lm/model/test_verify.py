"""Verification: right models pass, and each way of being wrong fails the check that it is for."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import random_tables

from rescore.lm.build.backoff import with_backoff
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.model.compile import compile_tables
from rescore.lm.model.contexts import Contexts
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables
from rescore.lm.model.verify import verify, verify_model, verify_structure

NAMES = [
    "entries",
    "states",
    "contexts",
    "order",
    "suffixes",
    "backoff states",
    "next states",
    "sums to one",
    "metadata",
]


def failed(arrays, order, **options) -> str:
    """The check that fails, and why."""
    checks = verify_structure(Contexts(arrays, order=order, **options))
    wrong = [check for check in checks if check.passed is False]
    assert len(wrong) == 1 and all(check.passed is None for check in checks[checks.index(wrong[0]) + 1 :])
    return f"{wrong[0].name}: {wrong[0].found}"


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 6))
def test_models_pass(seed, order):
    tables = random_tables(seed, order, vocab_size=7, tokens=80)
    for own in (tables, prune(tables, PruneOptions(theta=0.01))):
        checks = verify_model(NGram.from_tables(own, metadata={"end_of_text": 0, "tokenizer": "x"}))
        assert [check.name for check in checks] == NAMES and all(check.passed for check in checks), checks


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from(["arc_next", "backoff_state"]), st.data())
def test_no_other_state_passes(seed, order, name, data):
    """Next and backoff states follow from the n-grams, so that any other one is wrong."""
    arrays = compile_tables(random_tables(seed, order, vocab_size=6, tokens=50))
    values = getattr(arrays, name).copy()
    at = data.draw(st.integers(1 if name == "backoff_state" else 0, len(values) - 1))
    other = data.draw(st.integers(0, len(arrays.backoff_state) - 1))
    if other != values[at]:
        values[at] = other
        failed(arrays._replace(**{name: values}), order)


@pytest.fixture(scope="module")
def trigrams():
    """1 2 3 and 1 2 1, in circles; (2 1) is a context that has no n-grams."""
    rows = [
        np.array(own, np.uint32)
        for own in (
            [[0], [1], [2], [3]],
            [[1, 2], [2, 1], [2, 3], [3, 1]],
            [[1, 2, 1], [1, 2, 3], [2, 3, 1], [3, 1, 2]],
        )
    ]
    cost = [np.full(4, np.log(4.0)), np.array([0.3, 1.2, 1.5, 0.4]), np.array([1.0, 1.1, 0.2, 0.5])]
    return compile_tables(
        with_backoff(Tables.from_rows(rows, cost, [np.zeros(4), np.array([0, 1.0, 0, 0])], vocab_size=4))
    )


def changed(arrays, name, at, value):
    values = getattr(arrays, name).copy()
    values[at] = value
    return arrays._replace(**{name: values})


def test_the_worked_model(trigrams):
    # states 0 (); 1 (1), 2 (2), 3 (3), as (0) is none; 4 (2 1), 5 (3 1), 6 (1 2), 7 (2 3)
    assert trigrams.backoff_state.tolist() == [0, 0, 0, 0, 1, 1, 2, 3]
    assert all(check.passed for check in verify_structure(Contexts(trigrams, order=3)))


@pytest.mark.parametrize(
    "name, at, value, message",
    [
        ("backoff_state", 4, 4, "states: state 4: expected to back off to one before it, got 4"),
        ("backoff_state", 6, 0, "states: state 6: backs off to 0, the state before it to 1"),
        ("backoff_state", 7, 6, "states: expected contexts of at most 2 tokens, got 3"),
        ("backoff_state", 4, 0, "contexts: state 4: expected one n-gram of order 1 that leads to it, got 0"),
        ("backoff_state", 7, 2, r"backoff states: context \(2 3\): expected to back off to \(3\), got \(2\)"),
        ("arc_next", 1, 0, "contexts: state 1: expected one n-gram of order 1 that leads to it, got 0"),
        (
            "arc_next",
            0,
            5,
            "contexts: n-gram 0: expected to lead to a context of its own tokens, got state 5, a longer one",
        ),
        ("arc_next", 0, 1, "contexts: state 1: expected one n-gram of order 1 that leads to it, got 2"),
        (
            "arc_next",
            slice(1, 3),
            (2, 1),
            r"order: state 2: expected its context \(1\) to come after that of the state before it, \(2\)",
        ),
        ("arc_token", 8, 0, r"suffixes: n-gram \(3 1 0\): expected its last token to follow \(1\) too, got no n-gram"),
        ("arc_next", -1, 1, r"next states: n-gram \(2 3 1\): expected to lead to \(3 1\), got \(1\)"),
        (
            "arc_cost",
            0,
            0.1,
            r"sums to one: expected 1 within 0.0001 after every context; .* after \(.*\) is farthest from 1",
        ),
        ("backoff_cost", 7, 9.0, r"sums to one: .* after \(2 3\) is farthest from 1"),
    ],
)
def test_what_is_wrong_is_named(trigrams, name, at, value, message):
    found = failed(changed(trigrams, name, at, value), 3)
    assert re.search(message, found), found


@pytest.mark.filterwarnings("error")
@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.data())
def test_costs_of_any_size_fail_without_warnings(seed, order, data):
    arrays = compile_tables(random_tables(seed, order, vocab_size=6, tokens=50))
    for name in ("arc_cost", "backoff_cost")[: 1 if order == 1 else 2]:
        costs = getattr(arrays, name).copy()
        few = data.draw(st.lists(st.integers(1, len(costs) - 1), min_size=1, max_size=9))
        costs[few] = data.draw(
            st.lists(st.sampled_from([-3e38, 3e38, -800, -89]), min_size=len(few), max_size=len(few))
        )
        arrays = arrays._replace(**{name: costs})
    if (arrays.arc_cost < -1).any():
        assert re.match(r"sums to one: .*; [-0-9.e+]* after \(", failed(arrays, order))
    else:
        verify_structure(Contexts(arrays, order=order))


@pytest.mark.filterwarnings("error")
def test_the_reference_file_fails_without_warnings(shared):
    checks = verify(shared / "reference" / "hostile" / "verify_warning.ngram")
    assert [check.name for check in checks if check.passed is False] == ["sums to one"]


def test_quantised_models_pass_with_their_own_tolerance():
    model = NGram.from_tables(random_tables(5, 3, vocab_size=60, tokens=4000)).quantised()
    assert all(check.passed for check in verify_model(model))
    assert [check.name for check in verify_model(model, tolerance=1e-9) if check.passed is False] == ["sums to one"]


def test_words_are_spelled(trigrams):
    assert "after (2 3), 'cd', is farthest" in failed(
        changed(trigrams, "backoff_cost", 7, 9.0), 3, words=("a", "b", "c", "d")
    )


@pytest.mark.parametrize(
    "metadata, message",
    [
        ({"end_of_text": 9}, "end_of_text: expected an id in 0..8, got 9"),
        ({"bos": True}, "bos: expected an id in 0..8, got True"),
        ({"tokenizer": 5}, "tokenizer: expected a hash, got 5"),
        ({"ngrams": [1, 2]}, r"ngrams: expected \[9, \d+\], the n-grams of each order, got \[1, 2\]"),
    ],
)
def test_metadata(metadata, message):
    model = NGram.from_tables(random_tables(2, 2))
    last = verify_model(replace(model, metadata={**model.metadata, **metadata}))[-1]
    assert last.name == "metadata" and last.passed is False and re.search(message, last.found), last


def test_files(tmp_path):
    model = NGram.from_tables(random_tables(2, 3))
    model.save(tmp_path / "a.ngram")
    assert all(check.passed for check in verify(tmp_path / "a.ngram"))
    data = bytearray((tmp_path / "a.ngram").read_bytes())
    data[-100] ^= 1
    (tmp_path / "b.ngram").write_bytes(data)
    (check,) = verify(tmp_path / "b.ngram")
    assert (check.name, check.passed) == (
        "file",
        False,
    ) and "checksum does not match; the file is damaged" in check.found
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "c.ngram")
