"""Differences between models, against those of their dictionaries."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import from_tables, random_tables

from rescore.lm.build.diff import difference
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables


def model(seed: int, order: int, vocab_size: int = 7) -> NGram:
    return NGram.from_tables(random_tables(seed, order, vocab_size=vocab_size, tokens=50))


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 4), st.sampled_from([6, 7]))
def test_differences_are_those_of_the_dictionaries(seed, first, second, vocab_size):
    a, b = model(seed, first), model(seed + 1, second, vocab_size)
    found, (mine, theirs) = difference(a, b), (from_tables(one.to_tables()) for one in (a, b))
    assert len(found.ngrams) == max(first, second) and len(found.contexts) == max(first, second) - 1
    for rows, x, y in ((found.ngrams, mine.cost, theirs.cost), (found.contexts, mine.backoff, theirs.backoff)):
        for length, row in enumerate(rows, 1):
            own, other = ({key for key in costs if len(key) == length} for costs in (x, y))
            assert (row.only_a, row.only_b, row.both) == (len(own - other), len(other - own), len(own & other))
            gaps = {key: abs(x[key] - y[key]) for key in own & other}
            assert row.largest == pytest.approx(max(gaps.values(), default=0))
            assert row.mean == pytest.approx(sum(gaps.values()) / max(len(gaps), 1))
            if row.worst is not None:
                assert gaps[row.worst] == pytest.approx(row.largest)
                assert (row.a, row.b) == pytest.approx((x[row.worst], y[row.worst]))
    assert not found.same and ("vocab_size" in found.facts) == (vocab_size != 7)
    assert ("order" in found.facts) == (first != second)


def test_what_else_differs():
    one = replace(model(1, 2), words=tuple("abcdefg"))
    same = difference(one, replace(one))
    assert same.to_json()["same"] is True and not same.facts
    assert all(own.worst is None for own in (*same.ngrams, *same.contexts))
    assert difference(one, replace(one, words=tuple("abxdefy"))).facts == {"words": ("2 others", "2 others")}
    assert difference(one, replace(one, words=None)).facts == {"words": ("some", "none")}
    found = difference(one, replace(one, metadata={**one.metadata, "end_of_text": 3, "ngrams": "whatever"}))
    assert found.facts == {"end_of_text": (None, 3)} and not found.same


def test_contexts_alone_may_differ():
    """One that has no n-grams but costs something to back off from."""
    rows, cost = [np.arange(3, dtype=np.uint32)[:, None], np.array([[0, 1]], np.uint32)], [np.ones(3), np.ones(1)]
    a, b = (
        NGram.from_tables(Tables.from_rows(rows, cost, [np.array(backoff)], vocab_size=3))
        for backoff in ([0.5, 0, 0], [0.5, 0, 1.5])
    )
    found = difference(a, b)
    assert all(own.same for own in found.ngrams) and (found.contexts[0].only_b, found.contexts[0].both) == (1, 1)
    assert not found.same
