import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import opengrm, oracle_katz
from support.models import assert_same_costs, assert_sums_to_one
from support.oracle_lm import random_text
from support.refusals import refuses

from rescore.lm.build.counts import count
from rescore.lm.build.estimate import KatzOptions, estimate_model, good_turing


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.integers(1, 7),
    st.booleans(),
    st.sampled_from([(), (1, 1, 2, 2, 2, 2, 2), (1, 1, 2, 3, 3, 3, 4), (1, 2, 2, 2, 4, 4, 4)]),
)
def test_katz_is_that_of_the_definition(seed, order, textbook, min_counts):
    min_counts = min_counts[:order]
    text = random_text(seed, 9, 150)
    counts = count([text], order=order, vocab_size=12, end_of_text=0, min_counts=min_counts)
    tables = estimate_model(counts, KatzOptions(textbook=textbook))
    assert_sums_to_one(tables)
    if textbook:
        return  # contexts without mass are scaled, which the definition does not say
    documents = "".join(map(chr, text[1:])).removesuffix("\0").split("\0")
    slow = oracle_katz.count([list(map(ord, document)) for document in documents], order, 0)
    assert_same_costs(tables, oracle_katz.katz(slow, order, 12, min_counts=min_counts), 1e-9)


@pytest.mark.parametrize("textbook", [False, True])
@pytest.mark.parametrize("unseen_cost", [None, 1000.0])
def test_contexts_sum_to_one_even_where_nothing_is_left(textbook, unseen_cost):
    # after 1 every token that was ever seen, far more often than k: no mass for others, above or below
    text = [0] + [1, 2, 1, 3, 1, 1, 0] * 20
    counts = count([text], order=3, vocab_size=4, end_of_text=0)
    tables = estimate_model(counts, KatzOptions(textbook=textbook, unseen_cost=unseen_cost))
    assert_sums_to_one(tables)
    assert all(np.isfinite(cost).all() for cost in (*tables.cost, *tables.backoff))


def test_discounts_by_hand():
    # n_1..n_6 = 100, 40, 20, 12, 8, 5: g = 6 * 5 / 100, r* = 2 * 40 / 100, ..
    d = good_turing([100, 40, 20, 12, 8, 5], KatzOptions())
    assert d["d"][0] == pytest.approx((0.8 / 1 - 0.3) / 0.7)
    assert d["d"][1] == pytest.approx((60 / 40 / 2 - 0.3) / 0.7)
    assert d["d"][5] == 0.999 and d["fallbacks"] == []
    zero = good_turing([100, 40, 0, 12, 8, 0], KatzOptions())  # no n_6: g = 0; n_3 is left out of r*
    assert zero["d"][0] == pytest.approx(0.8)
    assert zero["d"][1] == pytest.approx(3 / 40 / 2)
    assert zero["fallbacks"] == [3] and zero["d"][2] == 0.999  # 4 * 12 / 3 > 1
    assert good_turing([100, 40, 0, 12, 8, 0], KatzOptions(textbook=True))["d"][2] == 1.0
    assert good_turing([6, 1, 1, 1, 1, 1], KatzOptions())["fallbacks"] == [1, 2, 3, 4, 5]  # g = 1


def test_unseen_ids_share_what_was_seen_once():
    counts = count([[1, 1, 1, 2, 2, 3, 4]], order=1, vocab_size=10, end_of_text=0)  # 0 ends it: 0, 3, 4 were seen once
    p = np.exp(-estimate_model(counts).cost[0])
    np.testing.assert_allclose(p, [1 / 11, 3 / 11, 2 / 11, 1 / 11, 1 / 11, *[3 / 5 / 11] * 5])
    p = np.exp(-estimate_model(count([[1, 1, 1, 2, 2, 3, 4]], order=1, vocab_size=6, end_of_text=0)).cost[0])
    assert p[5] == pytest.approx(1 / 9)  # not more than an id seen once
    cost = estimate_model(counts, KatzOptions(unseen_cost=1000.0)).cost[0]
    assert cost[9] == 1000.0 and cost[1] == pytest.approx(-math.log(3 / 8))


def test_opengrm_katz(shared):
    folder = shared / "reference" / "opengrm"
    ids = opengrm.read_symbols(folder / "earnest.sym")
    tables = estimate_model(opengrm.read_counts(folder / "earnest.cnts.txt.gz", ids), KatzOptions(unseen_cost=1000.0))
    reference = opengrm.read_model(folder / "earnest-katz.mod.txt.gz", ids)
    assert tables.ngrams == reference.ngrams == (2307, 10319, 14796, 15218, 14170)
    for n in range(1, 6):
        assert np.array_equal(tables.spell(n), reference.spell(n))
        np.testing.assert_allclose(tables.cost[n - 1], reference.cost[n - 1], atol=1e-5)
    for mine, theirs in zip(tables.backoff, reference.backoff, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(k=0), ["1..1000"]),
        (dict(unseen_cost=math.inf), ["unseen_cost", "inf", "0..2302585"]),
        (dict(unseen_cost=-1.0), ["unseen_cost", "0..2302585", "-1.0"]),
    ],
)
def test_wrong_options_are_named(options, message):
    refuses(ValueError, lambda: KatzOptions(**options), *message)
