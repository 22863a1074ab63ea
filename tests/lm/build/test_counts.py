"""Counts and windows against their definitions; runs of windows, damaged ones among them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import oracle_katz, oracle_kneser_ney
from support.counts import counts_as_dict, spell_keys
from support.refusals import refuses

from rescore import _core
from rescore.lm.build.counts import CountOptions, Run, count, merge_slice, slice_levels
from rescore.lm.build.windows import Packing, join
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


DOCUMENTS = st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=5)


def stream_of(documents, end_of_text=0):
    return [end_of_text] + [token for document in documents for token in (*document, end_of_text)]


def windows(stream, order, end_of_text):
    """The longest n-gram that ends at each position, from the definition."""
    for end in range(2, len(stream) + 1):
        begins = range(max(0, end - order), end)
        yield max((stream[at:end] for at in begins if end_of_text not in stream[at + 1 : end - 1]), key=len)


def spelled(packing, keys):
    offsets, tokens = spell_keys(packing, keys)
    return [tuple(tokens[a:b].tolist()) for a, b in zip(offsets, offsets[1:])]


@settings(max_examples=150)
@given(DOCUMENTS, st.integers(1, 7), st.sampled_from([6, 7, 1 << 9, 1 << 16, (1 << 16) + 1, 1 << 18, 1 << 24]))
def test_windows_are_those_of_the_definition(documents, order, vocab_size):
    top = vocab_size - 1  # the highest id is the end of text: packed words may be negative
    stream = [top if token == 0 else token for token in stream_of(documents)]
    packing = Packing(order=order, vocab_size=vocab_size, end_of_text=top)
    keys = packing.keys(np.array(stream, np.uint32))
    assert keys.shape == (packing.words, len(stream) - 1)
    assert spelled(packing, keys) == [tuple(w) for w in windows(stream, order, top)]


def test_join():
    assert join([], 5, 0).tolist() == [0]
    assert join([[1], [], [0, 2, 0], [0], [3, 0, 0]], 5, 0).tolist() == [0, 1, 0, 2, 0, 3, 0, 0]
    assert join([[1]], 1 << 16, 0).dtype == np.uint16 and join([[1]], (1 << 16) + 1, 0).dtype == np.uint32


EOT = 0


def test_files_are_read_piece_by_piece(tmp_path):
    options = CountOptions(order=5, vocab_size=300, end_of_text=EOT)
    text = np.random.default_rng(1).integers(0, 300, 200_000).astype(np.uint16)
    run = Run.of_tokens([text], options, [100, 200])
    assert min(np.diff(run.slices)) > 1 << 18, "each slice takes more than one read"
    (tmp_path / "run").write_bytes(b"before" + run.source)
    for number in range(3):
        begin, end = run.slices[number : number + 2]
        layout = {"order": 5, "vocab_size": 300, "end_of_text": EOT}
        whole = _core.RunSlices([run.source[begin:end]], **layout).spell(10**6)
        from_file = _core.RunSlices([(str(tmp_path / "run"), begin + 6, end + 6)], **layout)
        parts = []
        while not parts or parts[-1][-1]:
            parts.append(from_file.spell(7))
        np.testing.assert_array_equal(np.concatenate([tokens for _, tokens, _, _ in parts]), whole[1])
        np.testing.assert_array_equal(np.concatenate([counts for _, _, counts, _ in parts]), whole[2])


def consume(source, order, vocab_size):
    """What can be made of a slice, each with whether it ended without an error."""
    layout = {"order": order, "vocab_size": vocab_size, "end_of_text": EOT}

    def levels():
        builder = _core.LevelBuilder(**layout, min_counts=[1] * order, most=3)
        slices, parts, more = _core.RunSlices(source, **layout), [], True
        while more:
            more = builder.add(slices, 5)
        builder.finish()
        parts = builder.take()
        contexts = 1
        for context_token, context_parent, context_total, context_end, token, times, *_ in parts:
            assert (context_token < vocab_size).all() and (token < vocab_size).all()
            assert (context_parent < contexts).all() and (context_total > 0).all() and (times > 0).all()
            assert len(context_end) == len(context_token) and (not len(context_end) or context_end[-1] == len(token))
            contexts = len(context_token)
        assert builder.unigrams().sum() < 1 << 54

    def write():
        slices, more = _core.RunSlices(source, **layout), True
        while more:
            _, _, more = slices.write(5)

    def spell():
        slices, more = _core.RunSlices(source, **layout), True
        while more:
            offsets, tokens, counts, more = slices.spell(5)
            assert (tokens >= 0).all() and (tokens < vocab_size).all() and (counts > 0).all()

    ended = []
    for body in (levels, write, spell):
        try:
            body()
            ended.append(True)
        except ValueError as error:
            assert "damaged" in str(error) or "2^53" in str(error)
            ended.append(False)
    return ended


@settings(max_examples=200)
@given(st.binary(max_size=60), st.integers(1, 7), st.sampled_from([1, 5, 60, 300_000]), st.booleans())
@example(b"\xff" * 60, 7, 300_000, False)
@example(b"\xbf" + b"\xff" * 59, 1, 1, True)
@example(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1, 5, True)
def test_any_bytes_end_or_are_an_error(data, order, vocab_size, twice):
    consume([data, data[::-1]] if twice else [data], order, vocab_size)


@settings(max_examples=100)
@given(
    st.lists(st.lists(st.integers(1, 5), max_size=9), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(0, 10**6),
    st.integers(0, 7),
)
def test_flipped_bits_end_or_are_an_error(documents, order, at, bit):
    options = CountOptions(order=order, vocab_size=6, end_of_text=EOT)
    text = np.array([token for document in documents for token in (*document, EOT)], np.uint16)
    data = bytearray(Run.of_tokens([text], options, []).source)
    if data:
        data[at % len(data)] ^= 1 << bit
    consume([bytes(data)], order, 6)


def test_a_run_that_is_cut_is_an_error(tmp_path):
    options = CountOptions(order=3, vocab_size=6, end_of_text=EOT)
    run = Run.of_tokens([np.array([1, 2, 3, 1, 2, 0], np.uint16)], options, [])
    (tmp_path / "run").write_bytes(run.source[:-1])

    def read(source, slices=run.slices):
        return [Run(source=source, slices=slices, windows=6, tokens=6)], 0, options

    refuses(ValueError, lambda: merge_slice(*read(tmp_path / "run")).spell(100), "run")
    refuses(ValueError, lambda: merge_slice(*read(tmp_path / "run", [5, 2])), "5", "2")
    refuses(RuntimeError, lambda: merge_slice(*read(tmp_path / "nothing", [0, 2])), "nothing")
    refuses(ValueError, lambda: slice_levels(*read(run.source[:-1] + b"\x80"), lambda parts: None), "windows")


GOOD = {"order": 3, "vocab_size": 6, "end_of_text": 0, "starts": []}


def test_wrong_text_is_refused():
    text = np.array([1, 2, 0], np.uint16)
    refuses(ValueError, lambda: _core.count_windows([text], **{**GOOD, "vocab_size": 2}), "token 1", "0..1", "2")
    with pytest.raises(TypeError):
        _core.count_windows([text.astype(np.int64)], **GOOD)


@pytest.mark.parametrize(
    "offsets, tokens, counts, message",
    [
        ([0, 3], [1, 2, 3], [0], ["window 0", "1", "3"]),
        ([0, 3, 1], [1, 2, 3], [1, 1], ["window 1", "3"]),
        ([-1, 2], [1, 2, 3], [1], ["window 0", "1", "3"]),
        ([2, 5], [1, 2, 3], [1], ["window 0", "1", "3"]),
        ([0, 3], [1, 2, 6], [1], ["window 0", "0..5", "6"]),
        ([0, 3], [1, 0, 2], [1], ["window 0"]),
        ([0, 2, 4], [0, 1, 0, 2], [1 << 53, 1], ["counts", "2^53"]),
    ],
)
def test_wrong_windows_are_refused(offsets, tokens, counts, message):
    """Files of windows are checked before (test_counts_files.py)."""
    arrays = (np.array(offsets, np.int64), np.array(tokens, np.int32), np.array(counts, np.int64))
    refuses(ValueError, lambda: _core.run_of_windows(*arrays, **GOOD), *message)
