"""Kneser-Ney models: the slow twin against lmplz, ours against the twin."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import lmplz, oracle_katz, oracle_kneser_ney
from support.models import assert_same_costs, assert_sums_to_one
from support.oracle_lm import from_tables, random_history, random_text
from support.refusals import refuses

from rescore.lm.build.counts import Counts
from rescore.lm.build.in_memory import build
from rescore.lm.build.kneser_ney import KneserNeyOptions, kneser_ney, modified_discounts
from rescore.lm.build.prune import PruneOptions, prune
from rescore.lm.build.runs import count
from rescore.lm.model.arpa import LN10
from rescore.lm.model.arpa_write import write_arpa
from rescore.lm.model.ngram import NGram

FALLBACK = (0.5, 1.0, 1.5)
CUT_OFFS = [(), (1, 1, 2, 2, 2), (1, 1, 2, 3, 3), (1, 2, 2, 4, 4)]


def documents_of(text):
    """Documents between the ends of text, 0."""
    return [list(map(ord, part)) for part in "".join(map(chr, text[1:])).removesuffix("\0").split("\0")]


def small_model(text, order, vocab_size, *, min_counts=(), fallback=FALLBACK):
    counts = count([text], order=order, vocab_size=vocab_size, end_of_text=0, min_counts=min_counts, adjusted=True)
    return kneser_ney(counts, KneserNeyOptions(discount_fallback=fallback))


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
    twin = oracle_kneser_ney.kneser_ney(
        oracle_katz.count(documents, reference.order, lmplz.EOT), reference.order, size, lmplz.EOT, **options
    )
    stream = [token for document in documents for token in (*document, lmplz.EOT)]
    mine = from_tables(small_model([lmplz.EOT, *stream], reference.order, size, **{"fallback": None, **options}))
    padding = {(token,) for token in range(reference.vocab_size, size)}
    for model in (twin, mine):
        assert model.cost.keys() - padding == reference.cost.keys()
        for gram, cost in reference.cost.items():
            assert model.cost[gram] == pytest.approx(cost, abs=1e-5), gram
        for context, cost in reference.backoff.items():
            assert model.backoff.get(context, 0.0) == pytest.approx(cost, abs=1e-5), context


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(CUT_OFFS), st.sampled_from([20, 150, 600]))
def test_kneser_ney_is_that_of_the_definition(seed, order, min_counts, tokens):
    text, min_counts = random_text(seed, 9, tokens), min_counts[:order]
    tables = small_model(text, order, 12, min_counts=min_counts)
    assert_sums_to_one(tables)
    counts = oracle_katz.count(documents_of(text), order, 0)
    twin = oracle_kneser_ney.kneser_ney(counts, order, 12, 0, fallback=FALLBACK, min_counts=min_counts)
    assert_same_costs(tables, twin, 1e-9)


def as_sentences(counts, bos):
    """Counts in which the end of text that begins an n-gram is <s>, rows and numbers by order."""
    named = {(bos, *gram[1:]) if len(gram) > 1 and gram[0] == 0 else gram: c for gram, c in counts.items()}
    orders = range(1, max(map(len, named)) + 1)
    rows = [np.array([gram for gram in named if len(gram) == n], np.uint32) for n in orders]
    return rows, [np.array([c for gram, c in named.items() if len(gram) == n], np.uint64) for n in orders]


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_a_begin_of_sentence_is_a_context_and_no_event(seed, order):
    bos, size = 12, 13
    text = random_text(seed, 9, 200)
    counts = oracle_katz.count(documents_of(text), order, 0)
    rows, numbers = as_sentences(counts, bos)
    counted = Counts.from_rows(rows, numbers, vocab_size=size, bos=bos, eos=0, adjusted=True)
    tables = kneser_ney(counted, KneserNeyOptions(discount_fallback=FALLBACK))
    assert_sums_to_one(tables)
    twin = oracle_kneser_ney.kneser_ney(counts, order, size - 1, 0, fallback=FALLBACK)
    mine = from_tables(tables)
    for gram, cost in twin.cost.items():
        named = (bos, *gram[1:]) if len(gram) > 1 and gram[0] == 0 else gram
        assert mine.cost[named] == pytest.approx(cost, abs=1e-9)
    assert len(mine.cost) == len(twin.cost) + 1 and mine.cost[(bos,)] > 200


def test_discounts_by_hand():
    # n_1..n_4 = 100, 40, 20, 12: Y = 100 / 180
    assert modified_discounts([100, 40, 20, 12]) == pytest.approx(
        (1 - 2 * 100 / 180 * 0.4, 2 - 3 * 100 / 180 * 0.5, 3 - 4 * 100 / 180 * 0.6)
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ([0, 1, 2, 1, 3, 0], ["n_1", "n_2", "n_3", "--discount-fallback", "0.5,1,1.5"]),
        ([0, 1, 1, 1, 0], ["1", "--method"]),
    ],
)
def test_counts_that_give_no_discounts(text, message):
    refuses(ValueError, lambda: small_model(text, 2, 5, fallback=None), *message)
    tables = small_model(text, 2, 5)
    assert_sums_to_one(tables)
    assert tables.metadata["estimation"]["discounts"][0]["d"] == list(FALLBACK)
    assert tables.metadata["estimation"]["discounts"][0]["fell_back"]


def test_discounts_out_of_range():
    # n_1, n_2, n_3 = 40, 1, 9 words that each follow themselves and the end of text, ..: D2 = 2 - 3 Y 9 is negative
    words, text = iter(range(1, 60)), [0]
    for number, times in ((40, 1), (1, 2), (9, 3)):
        for _ in range(number):
            word = next(words)
            for before in range(times):
                text += [*([60 + before] if before else []), word, 0]
    refuses(ValueError, lambda: small_model(text, 2, 64, fallback=None), "D1", "D2", "D3", "0", "-2")


def test_ids_never_seen_share_the_uniform_term():
    tables = small_model(random_text(1, 9, 200), 3, 12)
    p = np.exp(-tables.cost[0])
    np.testing.assert_allclose(p[9:], p[9])
    assert 0 < p[9] < p[:9].min()


def test_counts_without_adjusted_ones():
    refuses(ValueError, lambda: kneser_ney(count([[1, 2]], order=2, vocab_size=3, end_of_text=0)), "adjusted")


@pytest.mark.parametrize("fallback", [(0.5, 1.0), (0.0, 1.0, 1.0), (0.5, 2.1, 1.0), (0.5, 1.0, math.nan)])
def test_wrong_options_are_named(fallback):
    refuses(ValueError, lambda: KneserNeyOptions(discount_fallback=fallback), "discount_fallback", "0", "D1")


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]))
def test_pruning_weighs_histories_as_often_as_they_were_seen(seed, order, theta):
    text = random_text(seed, 11, 60)
    tables = small_model(text, order, 11)
    counts = oracle_katz.count(documents_of(text), order, 0)
    seen = {}
    for gram, c in counts.items():
        seen[gram[:-1]] = seen.get(gram[:-1], 0) + c
    slow = oracle_katz.prune(from_tables(tables), theta, lambda context: seen[context] / seen[()])
    pruned = prune(tables, PruneOptions(theta=theta))
    mine = set(from_tables(pruned).cost)
    for gram in mine ^ set(slow.cost):  # one that lies on the limit may fall on either side
        loss = oracle_katz.loss(from_tables(tables), gram, lambda context: seen[context] / seen[()])
        assert abs(loss - math.log1p(theta)) < 1e-9
    if mine == set(slow.cost):
        assert_same_costs(pruned, slow, 1e-7)
    assert_sums_to_one(pruned)
    twice = prune(prune(tables, PruneOptions(theta=theta / 2)), PruneOptions(max_ngrams=tables.vocab_size))
    assert twice.order == 1 and twice.histories is not None and twice.histories.count == ()


@pytest.mark.parametrize("seed", range(4))
def test_kenlm_gives_our_scores(tmp_path, seed):
    import kenlm

    names = [f"w{i}" for i in range(12)]
    tables = small_model(random_text(seed, 9, 300), 2 + seed, 12)
    model = NGram.from_tables(prune(tables, PruneOptions(theta=1e-3)) if seed % 2 else tables, words=names)
    write_arpa(model, tmp_path / "model.arpa", words="text")
    peer, draw = kenlm.Model(str(tmp_path / "model.arpa")), random.Random(seed)
    for _ in range(30):
        tokens = random_history(draw, 12, 12)
        words = " ".join(names[token] for token in tokens)
        theirs = [-logp * LN10 for logp, _, _ in peer.full_scores(words, bos=False, eos=False)]
        np.testing.assert_allclose(model.score(tokens), theirs, atol=1e-4)


def test_build_in_memory():
    text = random_text(2, 9, 400)
    method = KneserNeyOptions(discount_fallback=FALLBACK)
    model = build([text], order=3, vocab_size=9, end_of_text=0, min_counts=(1, 1, 2), estimate=method)
    assert model.metadata["estimation"]["method"] == "kneser-ney"
    assert model.metadata["estimation"]["options"] == {"discount_fallback": FALLBACK, "min_counts": [1, 1, 2]}
    expected = NGram.from_tables(small_model(text, 3, 9, min_counts=(1, 1, 2)))
    np.testing.assert_array_equal(model.score(text[1:], history=[0]), expected.score(text[1:], history=[0]))
