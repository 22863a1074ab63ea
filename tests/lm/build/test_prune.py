import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import opengrm, oracle_katz
from support.counts import counts_as_dict
from support.models import assert_same_costs, assert_sums_to_one
from support.oracle_lm import from_tables, random_tables, random_text
from support.refusals import refuses

from rescore.lm.build.counts import count
from rescore.lm.build.estimate import KneserNeyOptions, estimate_model
from rescore.lm.build.prune import PruneOptions, prune, scores


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 7), st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]), st.booleans())
def test_pruning_is_that_of_the_definition(seed, order, theta, kneser_ney):
    """Katz weighs histories by the chain rule, Kneser-Ney as often as they were seen."""
    text, options = random_text(seed, 11, 60), {"order": order, "vocab_size": 11, "end_of_text": 0}
    method = KneserNeyOptions(discount_fallback=(0.5, 1.0, 1.5)) if kneser_ney else None
    counts = count([text], **options, adjusted=kneser_ney)
    tables = estimate_model(counts, method)
    seen = Counter()
    for gram, number in counts_as_dict(counts).items():
        seen[gram[:-1]] += number
    history = (lambda context: seen[context] / seen[()]) if kneser_ney else None
    slow, pruned = oracle_katz.prune(from_tables(tables), theta, history), prune(tables, PruneOptions(theta=theta))
    mine = set(from_tables(pruned).cost)
    for gram in mine ^ set(slow.cost):  # one that lies on the limit may fall on either side
        assert abs(oracle_katz.loss(from_tables(tables), gram, history) - math.log1p(theta)) < 1e-9
    if mine == set(slow.cost):
        assert_same_costs(pruned, slow, 1e-7)
    assert_sums_to_one(pruned)
    if kneser_ney:
        twice = prune(prune(tables, PruneOptions(theta=theta / 2)), PruneOptions(max_ngrams=tables.vocab_size))
        assert twice.order == 1 and twice.histories is not None and twice.histories.count == ()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(0, 150))
def test_a_budget_keeps_the_best(seed, budget):
    tables = random_tables(seed, 3, tokens=150)
    limit = tables.vocab_size + budget
    kept = prune(tables, PruneOptions(max_ngrams=limit))
    assert sum(kept.ngrams) <= limit
    every = np.sort(np.concatenate(scores(tables)))[::-1]
    if budget < len(every) and (budget == 0 or every[budget - 1] > every[budget]):
        assert sum(kept.ngrams) == limit
    assert_sums_to_one(kept)


def test_what_was_done_is_reported_and_empty_orders_go():
    tables = random_tables(5, 4)
    once = prune(tables, PruneOptions(theta=0.001))
    unigrams = prune(once, PruneOptions(max_ngrams=9))
    assert unigrams.ngrams == (9,)
    assert [own["theta"] for own in unigrams.metadata["pruning"]] == [0.001, None]
    assert unigrams.metadata["pruning"][1]["before"] == list(once.ngrams)
    assert prune(unigrams, PruneOptions(theta=1.0)).ngrams == (9,)


def test_opengrm_relative_entropy(shared):
    folder = shared / "reference" / "opengrm"
    ids = opengrm.read_symbols(folder / "earnest.sym")
    pruned = prune(opengrm.read_model(folder / "earnest-witten_bell.mod.txt.gz", ids), PruneOptions(theta=0.00015))
    reference = opengrm.read_model(folder / "earnest-relative_entropy.pru.txt.gz", ids)
    assert pruned.ngrams == reference.ngrams == (2307, 3311, 275, 6)
    for n in range(1, 5):
        assert np.array_equal(pruned.spell(n), reference.spell(n))
        np.testing.assert_allclose(pruned.cost[n - 1], reference.cost[n - 1], atol=1e-5)
    for mine, theirs in zip(pruned.backoff, reference.backoff):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    for total in pruned.sums():
        np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, ["neither", "max_ngrams"]),
        (dict(theta=0.1, max_ngrams=5), ["both"]),
        (dict(theta=-0.1), ["theta", "-0.1"]),
        (dict(theta=math.nan), ["theta"]),
        (dict(max_ngrams=0), ["max_ngrams", "1", "0"]),
    ],
)
def test_wrong_options_are_named(options, message):
    refuses(ValueError, lambda: PruneOptions(**options), *message)
