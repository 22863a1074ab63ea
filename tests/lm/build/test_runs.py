"""Runs of windows: counted, merged, spelled out; damaged ones; and the n-grams that are made of them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.refusals import refused, refuses

from rescore import _core
from rescore.lm.build.counts import CountOptions, Run, Windows, count_run, merge_slice, slice_levels, slice_starts

EOT = 0
texts = st.lists(st.lists(st.integers(1, 5), max_size=9), min_size=1, max_size=5)


def windows(documents, order):
    """{window: count} of the definition."""
    found: Counter = Counter()
    for document in documents:
        stream = [EOT, *document, EOT] if document else [EOT]
        for at in range(1, len(stream)):
            found[tuple(stream[max(0, at - order + 1) : at + 1])] += 1
    return found


def spelled(runs, options, slices=1):
    found: Counter = Counter()
    for number in range(slices):
        for offsets, tokens, counts in count_run(runs, number, options):
            for a, b, count in zip(offsets, offsets[1:], counts.tolist()):
                gram = tuple(tokens[a:b].tolist())
                assert gram not in found
                found[gram] = count
    return found


@settings(max_examples=60)
@given(
    texts,
    st.integers(1, 7),
    st.sampled_from([6, 70_000, 1 << 24]),
    st.lists(st.integers(0, 6), max_size=3, unique=True),
)
def test_merged_runs_are_the_windows_of_the_definition(documents, order, vocab_size, starts):
    options, starts = (
        CountOptions(order=order, vocab_size=vocab_size, end_of_text=EOT),
        sorted(starts) if order > 1 else [],
    )
    used, half = [document for document in documents if document], len(documents) // 2
    text, *parts = (
        np.array([token for document in some for token in (*document, EOT)], np.uint32)
        for some in (used, used[:half], used[half:])
    )
    expected = windows(documents, order)
    halves = [Run.of_tokens([part], options, starts) for part in parts]
    assert spelled(halves, options, len(starts) + 1) == expected
    assert sum(run.tokens for run in halves) == expected.total() == len(text)
    rows = list(expected)
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    tokens = np.array([t for row in rows for t in row], np.int32)
    again = Run.of_windows(
        Windows(offsets, tokens, np.array([expected[row] for row in rows], np.int64)), options, starts
    )
    assert (again.tokens, again.windows) == (len(text), len(rows))
    assert spelled([again], options, len(starts) + 1) == expected
    assert spelled([again, *halves], options, len(starts) + 1) == Counter(
        {row: 2 * count for row, count in expected.items()}
    )


def test_files_are_read_piece_by_piece(tmp_path):
    options = CountOptions(order=5, vocab_size=300, end_of_text=EOT)
    text = np.random.default_rng(1).integers(0, 300, 200_000).astype(np.uint16)
    run = Run.of_tokens([text], options, [100, 200])
    assert min(np.diff(run.slices)) > 1 << 18, "each slice takes more than one read"
    (tmp_path / "run").write_bytes(b"before" + run.source)
    for number in range(3):
        begin, end = run.slices[number : number + 2]
        whole = _core.RunSlices([run.source[begin:end]], order=5, vocab_size=300, end_of_text=EOT).spell(10**6)
        from_file = _core.RunSlices(
            [(str(tmp_path / "run"), begin + 6, end + 6)], order=5, vocab_size=300, end_of_text=EOT
        )
        parts = []
        while not parts or parts[-1][-1]:
            parts.append(from_file.spell(7))
        np.testing.assert_array_equal(np.concatenate([tokens for _, tokens, _, _ in parts]), whole[1])
        np.testing.assert_array_equal(np.concatenate([counts for _, _, counts, _ in parts]), whole[2])


def test_slices_are_about_equal():
    sample = np.random.default_rng(2).integers(0, 1000, 10_000).astype(np.uint16)
    starts = slice_starts(sample, 8)
    sizes = np.histogram(sample, [0, *starts, 1000])[0]
    assert len(starts) == 7 and sizes.min() > 1000
    assert slice_starts(np.zeros(50, np.uint16), 8) == [0]


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
        for context_token, context_parent, context_total, context_end, token, count, *_ in parts:
            assert (context_token < vocab_size).all() and (token < vocab_size).all()
            assert (context_parent < contexts).all() and (context_total > 0).all() and (count > 0).all()
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
@given(texts, st.integers(1, 6), st.integers(0, 10**6), st.integers(0, 7))
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
    with refused(ValueError, "run"):
        merge_slice([Run(source=tmp_path / "run", slices=run.slices, windows=6, tokens=6)], 0, options).spell(100)
    with refused(ValueError, "5", "2"):
        merge_slice([Run(source=tmp_path / "run", slices=[5, 2], windows=6, tokens=6)], 0, options)
    with refused(RuntimeError, "nothing"):
        merge_slice([Run(source=tmp_path / "nothing", slices=[0, 2], windows=6, tokens=6)], 0, options)
    with refused(ValueError, "windows"):
        slice_levels(
            [Run(source=run.source[:-1] + b"\x80", slices=run.slices, windows=6, tokens=6)],
            0,
            options,
            lambda parts: None,
        )


GOOD = {"order": 3, "vocab_size": 6, "end_of_text": 0}
ids = np.array([1, 2, 0], np.uint16)


@pytest.mark.parametrize(
    "parts, options, message",
    [
        ([ids], {"vocab_size": 2, "end_of_text": 0}, ["token 1", "0..1", "2"]),
        ([ids.astype(np.int32) - 1], {}, ["token 2", "0..5", "-1"]),
        ([ids], {"order": 8}, ["order", "1..7", "8"]),
        ([ids], {"order": 0}, ["order", "1..7", "0"]),
        ([ids], {"vocab_size": 0}, ["vocabulary size", "1..2^24", "0"]),
        ([ids], {"vocab_size": (1 << 24) + 1}, ["vocabulary size", "1..2^24"]),
        ([ids], {"end_of_text": 6}, ["0..5", "6"]),
        ([ids], {"starts": [3, 3]}, ["starts"]),
    ],
)
def test_wrong_text_is_refused(parts, options, message):
    refuses(ValueError, lambda: _core.count_windows(parts, **{**GOOD, "starts": [], **options}), *message)


@pytest.mark.parametrize("array", [ids.astype(np.int64), ids.astype(np.float32), ids.reshape(3, 1), [1, 2, 0], None])
def test_text_of_another_type_is_refused(array):
    with pytest.raises(TypeError):
        _core.count_windows([array], **GOOD, starts=[])


@pytest.mark.parametrize(
    "offsets, tokens, counts, message",
    [
        ([0, 3], [1, 2, 3], [0], ["window 0", "1", "3"]),
        ([0, 3], [1, 2, 3], [-4], ["window 0", "1", "3"]),
        ([0, 4], [1, 2, 3, 4], [1], ["window 0", "1", "3"]),
        ([0, 3, 3], [1, 2, 3], [1, 1], ["window 1", "3"]),
        ([0, 3, 1], [1, 2, 3], [1, 1], ["window 1", "3"]),
        ([-1, 2], [1, 2, 3], [1], ["window 0", "1", "3"]),
        ([2, 5], [1, 2, 3], [1], ["window 0", "1", "3"]),
        ([0, 3], [1, 2, 6], [1], ["window 0", "0..5", "6"]),
        ([0, 3], [-1, 2, 3], [1], ["window 0", "0..5", "-1"]),
        ([0, 2], [1, 2], [1], ["window 0", "3"]),
        ([0, 1], [0], [1], ["window 0"]),
        ([0, 3], [1, 0, 2], [1], ["window 0"]),
        ([0, 2, 4], [0, 1, 0, 2], [1 << 53, 1], ["counts", "2^53"]),
        ([0], [], [1], ["offsets", "2", "1"]),
    ],
)
def test_wrong_windows_are_refused(offsets, tokens, counts, message):
    with refused(ValueError, *message):
        _core.run_of_windows(
            np.array(offsets, np.int64), np.array(tokens, np.int32), np.array(counts, np.int64), **GOOD, starts=[]
        )


def test_windows_of_another_type_are_refused():
    good = [np.array([0, 2], np.int64), np.array([0, 1], np.int32), np.array([1], np.int64)]
    _core.run_of_windows(*good, **GOOD, starts=[])
    for at in range(3):
        for dtype in (np.float64, np.int16, np.uint32):
            with pytest.raises(TypeError):
                _core.run_of_windows(*good[:at], good[at].astype(dtype), *good[at + 1 :], **GOOD, starts=[])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"min_counts": [1, 1]}, ["min_counts", "3", "2"]),
        ({"min_counts": [1, 2, 1]}, ["min_counts", "1"]),
        ({"min_counts": [0, 1, 1]}, ["min_counts", "1"]),
        ({"most": 0}, ["most", "1", "2^20"]),
        ({"most": (1 << 64) - 1}, ["most", "1", "2^20"]),
    ],
)
def test_wrong_builders_are_refused(change, message):
    refuses(ValueError, lambda: _core.LevelBuilder(**{**GOOD, "min_counts": [1, 1, 1], "most": 5, **change}), *message)


def test_slices_of_something_else_are_refused():
    builder = _core.LevelBuilder(**GOOD, min_counts=[1, 1, 1], most=5)
    for other in ({"order": 7}, {"vocab_size": 1 << 24}, {"end_of_text": 1}):
        with refused(ValueError, "slices"):
            builder.add(_core.RunSlices([b""], **{**GOOD, **other}), 5)
    slices = _core.RunSlices([b""], **GOOD)
    for call in (lambda: builder.add(slices, 0), lambda: slices.spell(0), lambda: slices.write(0)):
        with refused(ValueError, "windows", "1", "0"):
            call()
