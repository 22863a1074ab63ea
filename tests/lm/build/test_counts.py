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


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.integers(1, 3), max_size=30), min_size=1, max_size=4),
    st.integers(1, 5),
    st.sampled_from([(), (1, 1, 2), (1, 2), (1, 2, 2, 3), (1, 1, 1, 1)]),
    st.booleans(),
)
def test_counts_are_those_of_the_definition(documents, order, min_counts, adjusted):
    """Cut-offs drop the rare, but not their counts."""
    stream = [0, *(token for document in documents for token in (*document, 0))]
    options = {"order": order, "vocab_size": 5, "end_of_text": 0, "min_counts": min_counts[:order]}
    counts = count([stream], **options, adjusted=adjusted)
    every = oracle_katz.count(documents, order, 0)
    least = [*(min_counts or (1,)), *[(min_counts or (1,))[-1]] * 5]
    kept = {gram for gram, c in every.items() if c >= least[len(gram) - 1]}
    assert counts.seen == [sum(len(gram) == n for gram in every) for n in range(1, order + 1)]
    assert_same(counts, every, kept)
    assert (counts.adjusted is not None) == adjusted
    if adjusted:
        full = oracle_kneser_ney.adjusted(every, order, 0)
        own = {name: getattr(counts.adjusted, name) for name in ("count", "total", "of_counts")}
        assert_same(dataclasses.replace(counts, **own), full, kept)


def assert_same(counts, expected, kept):
    """Counts of the kept n-grams in context order, totals of all, counts of counts of all."""
    assert counts_as_dict(counts) == {gram: expected[gram] for gram in kept}
    for n, of_counts in enumerate(counts.of_counts, 1):
        own = [c for gram, c in expected.items() if len(gram) == n]
        assert of_counts[1:9] == [own.count(r) for r in range(1, 9)]
    for n, total in enumerate(counts.total, 2):
        rows = spell(counts.levels, n).tolist()
        assert rows == sorted(rows, key=lambda gram: (gram[-2::-1], gram[-1]))
        for gram, context in zip(rows, counts.levels[n - 1].context()):
            own = [c for other, c in expected.items() if len(other) == n and other[:-1] == tuple(gram[:-1])]
            assert total[context] == sum(own)


def test_whole_documents_may_come_in_any_number_of_sequences():
    options = {"order": 3, "vocab_size": 4, "end_of_text": 0}
    one = counts_as_dict(count([[0, 1, 2, 0, 3, 1, 0]], **options))
    for parts in ([[1, 2], [3, 1]], [[0, 1, 2, 0], [0, 3, 1]], [[1, 2, 0, 3, 1]], [[0, 1, 2], [], [3, 1, 0]]):
        assert counts_as_dict(count(map(np.array, parts), **options)) == one, parts


@pytest.mark.parametrize(
    "options, message",
    [
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
