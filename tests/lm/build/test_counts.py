import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle_katz, oracle_kneser_ney
from support.counts import counts_as_dict
from support.refusals import refuses

from rescore.lm.build.counts import count
from rescore.lm.model.grams import spell


@settings(max_examples=150)
@given(st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=5), st.integers(1, 5))
def test_counts_are_those_of_the_definition(documents, order):
    stream = [0]
    for document in documents:
        stream += [*document, 0]
    counts = count([stream], order=order, vocab_size=7, end_of_text=0)
    assert counts_as_dict(counts) == dict(oracle_katz.count(documents, order, 0))
    for n in range(2, order + 1):
        rows = spell(counts.levels, n)
        assert rows.tolist() == sorted(rows.tolist(), key=lambda gram: (gram[-2::-1], gram[-1]))  # context order
        for context, total in enumerate(counts.total[n - 2].tolist()):
            assert total == counts.count[n - 1][counts.levels[n - 1].context() == context].sum()


@settings(max_examples=60)
@given(
    st.lists(st.lists(st.integers(1, 3), max_size=30), min_size=1, max_size=3),
    st.integers(1, 4),
    st.sampled_from([(), (1, 1, 2), (1, 2)]),
)
def test_adjusted_counts_are_those_of_the_definition(documents, order, min_counts):
    stream = [0]
    for document in documents:
        stream += [*document, 0]
    counts = count([stream], order=order, vocab_size=4, end_of_text=0, min_counts=min_counts[:order], adjusted=True)
    every = oracle_katz.count(documents, order, 0)
    full = oracle_kneser_ney.adjusted(every, order, 0)
    kept = counts_as_dict(counts)
    assert counts_as_dict(dataclasses.replace(counts, count=counts.adjusted.count)) == {
        gram: full[gram] for gram in kept
    }
    for n in range(1, order + 1):
        own = [c for gram, c in full.items() if len(gram) == n]
        assert [counts.adjusted.of_counts[n - 1][r] for r in range(1, 9)] == [own.count(r) for r in range(1, 9)]
    for n in range(2, order + 1):
        for gram, context in zip(spell(counts.levels, n).tolist(), counts.levels[n - 1].context()):
            assert counts.adjusted.total[n - 2][context] == sum(
                c for other, c in full.items() if len(other) == n and other[:-1] == tuple(gram[:-1])
            )


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(1, 3), max_size=30), min_size=1, max_size=3),
    st.sampled_from([(1, 1, 2), (1, 2), (1, 2, 2, 3), (1, 1, 1, 1)]),
)
def test_cut_offs_drop_the_rare_but_not_their_counts(documents, min_counts):
    stream = [0]
    for document in documents:
        stream += [*document, 0]
    counts = count([stream], order=4, vocab_size=4, end_of_text=0, min_counts=min_counts)
    every = oracle_katz.count(documents, 4, 0)
    least = [*min_counts, *[min_counts[-1]] * 4]
    assert counts_as_dict(counts) == {gram: c for gram, c in every.items() if c >= least[len(gram) - 1]}
    for n in range(1, 5):
        own = [c for gram, c in every.items() if len(gram) == n]
        assert counts.seen[n - 1] == len(own)
        assert [counts.of_counts[n - 1][r] for r in range(1, 9)] == [own.count(r) for r in range(1, 9)]
    for n in range(2, 5):
        for gram, context in zip(spell(counts.levels, n).tolist(), counts.levels[n - 1].context()):
            assert counts.total[n - 2][context] == sum(
                c for other, c in every.items() if len(other) == n and other[:-1] == tuple(gram[:-1])
            )


def test_whole_documents_may_come_in_any_number_of_sequences():
    one = count([[0, 1, 2, 0, 3, 1, 0]], order=3, vocab_size=4, end_of_text=0)
    for parts in ([[1, 2], [3, 1]], [[0, 1, 2, 0], [0, 3, 1]], [[1, 2, 0, 3, 1]], [[0, 1, 2], [], [3, 1, 0]]):
        assert counts_as_dict(count(map(np.array, parts), order=3, vocab_size=4, end_of_text=0)) == counts_as_dict(
            one
        ), parts


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(order=0), ["1..7", "0"]),
        (dict(order=8), ["1..7", "8"]),
        (dict(vocab_size=0), ["vocabulary size", "1..16777216", "0"]),
        (dict(end_of_text=9), ["0..3", "9"]),
        (dict(sequences=[[1, 4]]), ["sequence 0", "0..3", "4"]),
        (dict(sequences=[[1], [-1]]), ["sequence 1", "0..3", "-1"]),
        (dict(sequences=[[[1]]]), ["sequence 0", "shape"]),
        (dict(sequences=[]), ["least"]),
        (dict(min_counts=(2,)), ["min_counts", "1", "2"]),
        (dict(min_counts=(1, 0)), ["1"]),
        (dict(min_counts=(1, 1, 1)), ["min_counts", "2", "3"]),
    ],
)
def test_wrong_input_is_named(options, message):
    options = {"sequences": [[1, 2]], "order": 2, "vocab_size": 4, "end_of_text": 0, **options}
    refuses(ValueError, lambda: count(options.pop("sequences"), **options), *message)


@pytest.mark.parametrize("sequence", [[0.5], [True], ["1"], np.array([1.0], np.float32)])
def test_sequences_are_integers(sequence):
    refuses(TypeError, lambda: count([[1, 2], sequence], order=2, vocab_size=4, end_of_text=0), "sequence 1")
