"""Katz and Kneser-Ney models, whole and pruned, against slow twins, OpenGrm's models and lmplz's (the twins too)."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import lmplz, opengrm, oracle_katz, oracle_kneser_ney
from support.counts import counts_as_dict
from support.models import assert_same_costs, assert_sums_to_one
from support.oracle_lm import from_tables, random_tables, random_text
from support.refusals import refuses

from rescore.lm.build.counts import count
from rescore.lm.build.estimate import KatzOptions, KneserNeyOptions, estimate_model, good_turing
from rescore.lm.build.prune import PruneOptions, prune, scores

FALLBACK = (0.5, 1.0, 1.5)
CUT_OFFS = [(), (1, 1, 2, 3, 3, 3, 4), (1, 2, 2, 2, 4, 4, 4)]


def documents_of(text):
    """Documents between the ends of text, 0."""
    return [list(map(ord, part)) for part in "".join(map(chr, text[1:])).removesuffix("\0").split("\0")]


def kneser_ney_model(text, order, vocab_size, *, min_counts=(), fallback=FALLBACK):
    counts = count([text], order=order, vocab_size=vocab_size, end_of_text=0, min_counts=min_counts, adjusted=True)
    return estimate_model(counts, KneserNeyOptions(discount_fallback=fallback))


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 7), st.booleans(), st.sampled_from(CUT_OFFS))
def test_katz_is_that_of_the_definition(seed, order, textbook, min_counts):
    text, min_counts = random_text(seed, 9, 150), min_counts[:order]
    counts = count([text], order=order, vocab_size=12, end_of_text=0, min_counts=min_counts)
    tables = estimate_model(counts, KatzOptions(textbook=textbook))
    assert_sums_to_one(tables)
    if textbook:
        return  # contexts without mass are scaled, which the definition does not say
    slow = oracle_katz.count(documents_of(text), order, 0)
    assert_same_costs(tables, oracle_katz.katz(slow, order, 12, min_counts=min_counts), 1e-9)


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(CUT_OFFS), st.sampled_from([20, 150, 600]))
def test_kneser_ney_is_that_of_the_definition(seed, order, min_counts, tokens):
    text, min_counts = random_text(seed, 9, tokens), min_counts[:order]
    tables = kneser_ney_model(text, order, 12, min_counts=min_counts)
    assert_sums_to_one(tables)
    counts = oracle_katz.count(documents_of(text), order, 0)
    twin = oracle_kneser_ney.kneser_ney(counts, order, 12, 0, fallback=FALLBACK, min_counts=min_counts)
    assert_same_costs(tables, twin, 1e-9)


@pytest.mark.parametrize("textbook", [False, True])
@pytest.mark.parametrize("unseen_cost", [None, 1000.0])
def test_contexts_sum_to_one_even_where_nothing_is_left(textbook, unseen_cost):
    # after 1 every token that was ever seen, far more often than k: no mass for others, above or below; 4 was not seen
    text = [0] + [1, 2, 1, 3, 1, 1, 0] * 20
    counts = count([text], order=3, vocab_size=5, end_of_text=0)
    tables = estimate_model(counts, KatzOptions(textbook=textbook, unseen_cost=unseen_cost))
    assert_sums_to_one(tables)
    assert tables.cost[0][4] == (unseen_cost or pytest.approx(math.log(141)))
    assert all(np.isfinite(cost).all() for cost in (*tables.cost, *tables.backoff))


def test_discounts_by_hand():
    # n_1..n_6 = 100, 40, 20, 12, 8, 5: g = 6 * 5 / 100, r* = 2 * 40 / 100, ..
    d = good_turing([100, 40, 20, 12, 8, 5], KatzOptions())
    assert d["d"][:2] == pytest.approx([(0.8 / 1 - 0.3) / 0.7, (60 / 40 / 2 - 0.3) / 0.7])
    assert d["d"][5] == 0.999 and d["fallbacks"] == []
    zero = good_turing([100, 40, 0, 12, 8, 0], KatzOptions())  # no n_6: g = 0; n_3 is left out of r*
    assert zero["d"][:3] == pytest.approx([0.8, 3 / 40 / 2, 0.999]) and zero["fallbacks"] == [3]  # 4 * 12 / 3 > 1
    assert good_turing([100, 40, 0, 12, 8, 0], KatzOptions(textbook=True))["d"][2] == 1.0
    assert good_turing([6, 1, 1, 1, 1, 1], KatzOptions())["fallbacks"] == [1, 2, 3, 4, 5]  # g = 1


@pytest.fixture
def earnest(shared):
    """OpenGrm's files of a text: their folder and their ids."""
    folder = shared / "reference" / "opengrm"
    return folder, opengrm.read_symbols(folder / "earnest.sym")


def assert_close(mine, theirs, ngrams):
    assert mine.ngrams == theirs.ngrams == ngrams
    for n in range(1, mine.order + 1):
        assert np.array_equal(mine.spell(n), theirs.spell(n))
    for a, b in zip((*mine.cost, *mine.backoff), (*theirs.cost, *theirs.backoff), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_opengrm_katz(earnest):
    folder, ids = earnest
    tables = estimate_model(opengrm.read_counts(folder / "earnest.cnts.txt.gz", ids), KatzOptions(unseen_cost=1000.0))
    reference = opengrm.read_model(folder / "earnest-katz.mod.txt.gz", ids)
    assert_close(tables, reference, (2307, 10319, 14796, 15218, 14170))


def test_opengrm_relative_entropy(earnest):
    folder, ids = earnest
    pruned = prune(opengrm.read_model(folder / "earnest-witten_bell.mod.txt.gz", ids), PruneOptions(theta=0.00015))
    reference = opengrm.read_model(folder / "earnest-relative_entropy.pru.txt.gz", ids)
    assert_close(pruned, reference, (2307, 3311, 275, 6))
    for total in pruned.sums():
        np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize(
    "name, lines, vocab_size, options",
    [
        ("2.arpa", None, None, {}),
        ("3.arpa", None, None, {}),
        ("5.arpa", None, None, {}),
        ("3-padded.arpa", None, 40, {}),
        ("4-pruned.arpa", None, None, {"min_counts": (1, 1, 2, 3)}),
        ("3-fallback.arpa", 3, None, {"fallback": FALLBACK}),
    ],
)
def test_lmplz(name, lines, vocab_size, options):
    text = lmplz.sentences(lines)
    ids = lmplz.ids_of(text)
    reference = lmplz.read(name, ids)
    size = vocab_size or reference.vocab_size
    documents = [[ids[word] for word in sentence] for sentence in text]
    counts = oracle_katz.count(documents, reference.order, lmplz.EOT)
    twin = oracle_kneser_ney.kneser_ney(counts, reference.order, size, lmplz.EOT, **options)
    stream = [lmplz.EOT, *(token for document in documents for token in (*document, lmplz.EOT))]
    mine = from_tables(kneser_ney_model(stream, reference.order, size, **{"fallback": None, **options}))
    for model in (twin, mine):
        seen = {gram: cost for gram, cost in model.cost.items() if max(gram) < reference.vocab_size}
        assert seen == pytest.approx(reference.cost, abs=1e-5)
        assert {context: model.backoff.get(context, 0.0) for context in reference.backoff} == pytest.approx(
            reference.backoff, abs=1e-5
        )


def text_of_counts(*times):
    """n_1, n_2, .. words of the smallest ids that each follow one word, two, .."""
    words, text = iter(range(1, 60)), [0]
    for seen, number in enumerate(times, 1):
        for _ in range(number):
            word = next(words)
            for before in range(seen):
                text += [*([60 + before] if before else []), word, 0]
    return text


@pytest.mark.parametrize(
    "text, message",
    [
        ([0, 1, 2, 1, 3, 0], ["n_1", "n_2", "n_3", "--discount-fallback", "0.5,1,1.5"]),
        ([0, 1, 1, 1, 0], ["1", "--method"]),
        (text_of_counts(40, 1, 9), ["D1", "D2", "D3", "0", "-2"]),  # D2 = 2 - 3 Y 9 is negative
    ],
)
def test_counts_that_give_no_discounts(text, message):
    refuses(ValueError, lambda: kneser_ney_model(text, 2, 64, fallback=None), *message)
    tables = kneser_ney_model(text, 2, 64)
    assert_sums_to_one(tables)
    of_unigrams = tables.metadata["estimation"]["discounts"][0]
    assert of_unigrams["d"] == list(FALLBACK) and of_unigrams["fell_back"]


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(2, 7), st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]), st.booleans())
def test_pruning_is_that_of_the_definition(seed, order, theta, kneser_ney):
    """Katz weighs histories by the chain rule, Kneser-Ney as often as they were seen."""
    text, options = random_text(seed, 11, 60), {"order": order, "vocab_size": 11, "end_of_text": 0}
    method = KneserNeyOptions(discount_fallback=FALLBACK) if kneser_ney else None
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
    # An order without n-grams has no contexts, which is not the root's one context.
    few = estimate_model(count([[1]], order=5, vocab_size=9, end_of_text=0))
    assert few.ngrams == (9, 2, 1, 0, 0) and prune(few, PruneOptions(theta=0.0)).ngrams[0] == 9


@pytest.mark.parametrize(
    "options, message",
    [
        (lambda: estimate_model(count([[1]], order=2, vocab_size=3, end_of_text=0), KneserNeyOptions()), ["adjusted"]),
        (lambda: KatzOptions(k=0), ["1..1000"]),
        (lambda: KatzOptions(unseen_cost=math.inf), ["unseen_cost", "inf", "0..2302585"]),
        (lambda: KatzOptions(unseen_cost=-1.0), ["unseen_cost", "0..2302585", "-1.0"]),
        (lambda: KneserNeyOptions(discount_fallback=(0.5, 1.0)), ["discount_fallback", "0", "D1"]),
        (lambda: KneserNeyOptions(discount_fallback=(0.5, 2.1, math.nan)), ["discount_fallback", "0", "D1"]),
        (lambda: PruneOptions(), ["neither", "max_ngrams"]),
        (lambda: PruneOptions(theta=0.1, max_ngrams=5), ["both"]),
        (lambda: PruneOptions(theta=-0.1), ["theta", "-0.1"]),
        (lambda: PruneOptions(theta=math.nan), ["theta"]),
        (lambda: PruneOptions(max_ngrams=0), ["max_ngrams", "1", "0"]),
    ],
)
def test_wrong_options_are_named(options, message):
    refuses(ValueError, options, *message)
