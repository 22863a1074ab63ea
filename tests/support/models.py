"""Assertions for any model, and a reader of models that may be damaged."""

import random

import numpy as np
import pytest
from support.oracle_lm import from_tables

from rescore.lm.model.ngram import NGram


def assert_same_model(mine: NGram, theirs: NGram):
    for name, a, b in zip(mine.arrays._fields, mine.arrays, theirs.arrays):
        assert a.dtype == b.dtype and np.array_equal(a, b), name
    assert (mine.order, mine.vocab_size) == (theirs.order, theirs.vocab_size)


def assert_same_tables(mine, theirs, dtype=np.float32):
    """Costs are compared as float32, as models keep them, or as the given type."""
    assert mine.ngrams == theirs.ngrams
    for a, b in zip(mine.levels, theirs.levels, strict=True):
        for name in ("context_token", "context_parent", "begin", "token"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
    for a, b in zip((*mine.cost, *mine.backoff), (*theirs.cost, *theirs.backoff), strict=True):
        assert np.array_equal(a.astype(dtype), b.astype(dtype), equal_nan=True)


def assert_same_costs(tables, model, tolerance):
    mine = from_tables(tables)
    assert mine.cost == pytest.approx(model.cost, abs=tolerance)
    assert {context: mine.backoff[context] for context in model.backoff} == pytest.approx(model.backoff, abs=tolerance)


def assert_sums_to_one(tables):
    for order, total in enumerate(tables.sums()):
        np.testing.assert_allclose(total, 1.0, atol=1e-9, err_msg=f"contexts of length {order}")


def use(model: NGram) -> None:
    """Reads all that can be read of a model that may be damaged."""
    draw = random.Random(1)
    tokens = [draw.randrange(min(model.vocab_size, 9)) for _ in range(50)]
    model.score(tokens)
    model.info()
    for state in range(min(model.core.num_states, 20)):
        model.distribution(state)
