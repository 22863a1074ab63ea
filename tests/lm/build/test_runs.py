"""Runs of windows: counted, merged, spelled out; damaged ones; and the n-grams that are made of them."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.refusals import refuses

from rescore import _core
from rescore.lm.build.counts import CountOptions, Run, merge_slice, slice_levels

EOT = 0


def test_files_are_read_piece_by_piece(tmp_path):
    options = CountOptions(order=5, vocab_size=300, end_of_text=EOT)
    text = np.random.default_rng(1).integers(0, 300, 5000).astype(np.uint16)
    run = Run.of_tokens([(text, 0, len(text))], options, [100, 200])
    (tmp_path / "run").write_bytes(b"before" + run.source)
    for number in range(3):
        begin, end = run.slices[number : number + 2]
        layout = {"order": 5, "vocab_size": 300, "end_of_text": EOT}
        whole = _core.RunSlices([run.source[begin:end]], **layout).spell(10**6)
        from_file = _core.RunSlices([(str(tmp_path / "run"), begin + 6, end + 6)], **layout, buffer=1)
        parts = []
        while not parts or parts[-1][-1]:
            parts.append(from_file.spell(7))
        np.testing.assert_array_equal(np.concatenate([tokens for _, tokens, _, _ in parts]), whole[1])
        np.testing.assert_array_equal(np.concatenate([counts for _, _, counts, _ in parts]), whole[2])
        assert from_file.consumed == end - begin


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
@given(
    st.lists(st.lists(st.integers(1, 5), max_size=9), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(0, 10**6),
    st.integers(0, 7),
)
def test_flipped_bits_end_or_are_an_error(documents, order, at, bit):
    options = CountOptions(order=order, vocab_size=6, end_of_text=EOT)
    text = np.array([token for document in documents for token in (*document, EOT)], np.uint16)
    data = bytearray(Run.of_tokens([(text, 0, len(text))], options, []).source)
    if data:
        data[at % len(data)] ^= 1 << bit
    consume([bytes(data)], order, 6)


def test_a_run_that_is_cut_is_an_error(tmp_path):
    options = CountOptions(order=3, vocab_size=6, end_of_text=EOT)
    run = Run.of_tokens([(np.array([1, 2, 3, 1, 2, 0], np.uint16), 0, 6)], options, [])
    (tmp_path / "run").write_bytes(run.source[:-1])

    def read(source, slices=run.slices):
        return [Run(source=source, slices=slices, windows=6, tokens=6)], 0, options

    refuses(ValueError, lambda: merge_slice(*read(tmp_path / "run")).spell(100), "run")
    refuses(ValueError, lambda: merge_slice(*read(tmp_path / "run", [5, 2])), "5", "2")
    refuses(RuntimeError, lambda: merge_slice(*read(tmp_path / "nothing", [0, 2])), "nothing")
    refuses(ValueError, lambda: slice_levels(*read(run.source[:-1] + b"\x80"), lambda parts: None), "windows")


GOOD = {"order": 3, "vocab_size": 6, "end_of_text": 0, "starts": []}


@pytest.mark.parametrize(
    "begin, end, message", [(2, 1, ["parts"]), (0, 4, ["parts"]), (0, 3, ["token 1", "0..1", "2"])]
)
def test_wrong_text_is_refused(begin, end, message):
    text = np.array([1, 2, 0], np.uint16)
    refuses(ValueError, lambda: _core.count_windows([(text, begin, end)], **{**GOOD, "vocab_size": 2}), *message)
    with pytest.raises(TypeError):
        _core.count_windows([(text.astype(np.int64), 0, 3)], **GOOD)


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
