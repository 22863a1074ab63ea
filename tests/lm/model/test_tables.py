import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import assert_same_tables
from support.oracle_lm import Backoff, from_tables, random_history, random_tables
from support.refusals import refused, refuses

from rescore.lm.model.compile import compile_tables, decompile
from rescore.lm.model.tables import Tables


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 7), st.sampled_from([9, 70_000]))
def test_tables_come_back_from_the_automaton(seed, order, vocab_size):
    tables = random_tables(seed, order, tokens=80)
    if vocab_size > tables.vocab_size:  # the same n-grams over 32-bit tokens
        rows = [tables.spell(n) * 7000 for n in range(1, order + 1)]
        backoff = list(map(np.nan_to_num, tables.gram_backoffs()))
        tables = Tables.from_rows(rows, tables.cost, backoff, vocab_size=vocab_size, unseen_cost=20.0)
    arrays = compile_tables(tables)
    assert arrays.arc_token.dtype == (np.uint16 if vocab_size <= 65536 else np.uint32)
    assert_same_tables(decompile(arrays, order), tables)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 5), st.randoms(use_true_random=False))
def test_missing_suffixes_are_filled_without_a_change_of_scores(seed, order, draw):
    full = from_tables(random_tables(seed, order, vocab_size=6, tokens=60))
    cost = dict(full.cost)
    for gram in sorted(full.cost):  # drop some n-grams that are no context of others
        if len(gram) > 1 and draw.random() < 0.4 and not any(o[: len(gram)] == gram and o != gram for o in cost):
            del cost[gram]
    holed = Backoff(cost, full.backoff, order, 6)
    grams = list(cost)
    draw.shuffle(grams)
    rows = [[g for g in grams if len(g) == n] for n in range(1, order + 1)]
    tables = Tables.from_rows(
        [np.array(own, np.uint32).reshape(-1, n) for n, own in enumerate(rows, 1)],
        [np.array([cost[g] for g in own], np.float64) for own in rows],
        [np.array([full.backoff.get(g, 0.0) for g in own], np.float64) for own in rows[:-1]],
        vocab_size=6,
    )
    closed = from_tables(tables)
    holed.backoff = {context: b for context, b in full.backoff.items() if context in cost}
    assert all(g[1:] in closed.cost for g in closed.cost if len(g) > 1)
    for _ in range(40):
        history = random_history(random.Random(draw.random()), 6, order)
        token = draw.randrange(6)
        assert closed.of(history.tolist(), token) == pytest.approx(holed.of(history.tolist(), token), abs=1e-9)


def test_rows_that_fit_no_model_are_named():
    unigrams = {(0,): (0.5, 1.0), (1,): (0.5, 1.0)}
    with refused(ValueError, "3-gram", "[0, 1, 0]"):
        Tables.from_ngrams({**unigrams, (0, 0): (0.1, 1.0), (0, 1, 0): (0.1, 1.0)}, vocab_size=2)
    refuses(ValueError, lambda: Tables.from_ngrams(unigrams, vocab_size=3), "unigrams", "3", "2", "unseen_cost")
    assert Tables.from_ngrams(unigrams, vocab_size=3, unseen_cost=9.0).cost[0][2] == 9.0
    zero = [np.zeros(3), np.zeros(2)]
    rows = [np.array([[0], [1], [2]], np.uint32), np.array([[1, 2], [1, 2]], np.uint32)]
    refuses(ValueError, lambda: Tables.from_rows(rows, zero, zero[:1], vocab_size=3), "2-gram", "[1, 2]")
    with refused(ValueError, "1-gram", "[1]"):
        Tables.from_rows([np.array([[0], [1], [1]], np.uint32)], zero[:1], [], vocab_size=3)


def test_backoffs_of_n_grams_without_continuation_and_of_their_suffixes_stay():
    ngrams = {(0,): (0.5, 1.0), (1,): (0.4, 1.0), (2,): (0.1, 1.0), (0, 1): (0.2, 0.5), (2, 0): (0.3, 1.0)}
    ngrams |= {(2, 0, 2): (0.2, 1.0), (0, 2): (0.1, 1.0)}
    tables = Tables.from_ngrams(ngrams, vocab_size=3)
    model = from_tables(tables)
    assert model.backoff[(0, 1)] == pytest.approx(-np.log(0.5))  # though nothing follows it, nor (1)
    assert model.of((0, 1), 1) == pytest.approx(-np.log(0.5 * 0.4))
    assert from_tables(decompile(compile_tables(tables), 3)).backoff == pytest.approx(model.backoff)
