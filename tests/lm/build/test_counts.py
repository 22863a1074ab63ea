"""Counts and windows against their definitions; runs and files of windows, damaged ones and strangers' among them."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support import oracle_katz, oracle_kneser_ney
from support.counts import counts_as_dict, spell_keys, windows_as_dict
from support.refusals import refused, refuses

from rescore import _core
from rescore.lm.build import counts_files
from rescore.lm.build.counts import CountOptions, Run, Windows, count, merge_slice, slice_levels
from rescore.lm.build.counts_files import open_counts, write_counts
from rescore.lm.build.windows import CountsHeader, Packing, group, join
from rescore.lm.model.grams import spell

V, EOT = 6, 0
LAYOUT = {"order": 3, "vocab_size": V, "end_of_text": EOT}
DOCUMENTS = st.lists(st.lists(st.integers(1, 5), max_size=12), min_size=1, max_size=5)


@settings(max_examples=100)
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


def windows(stream, order, end_of_text):
    """The longest n-gram that ends at each position, from the definition."""
    for end in range(2, len(stream) + 1):
        begins = range(max(0, end - order), end)
        yield max((stream[at:end] for at in begins if end_of_text not in stream[at + 1 : end - 1]), key=len)


@settings(max_examples=100)
@given(DOCUMENTS, st.integers(1, 7), st.sampled_from([6, 7, 1 << 9, 1 << 16, (1 << 16) + 1, 1 << 18, 1 << 24]))
def test_windows_are_those_of_the_definition(documents, order, vocab_size):
    top = vocab_size - 1  # the highest id is the end of text: packed words may be negative
    stream = [top] + [token for document in documents for token in (*document, top)]
    packing = Packing(order=order, vocab_size=vocab_size, end_of_text=top)
    keys = packing.keys(np.array(stream, np.uint32))
    assert keys.shape == (packing.words, len(stream) - 1)
    offsets, tokens = spell_keys(packing, keys)
    spelled = [tokens[a:b].tolist() for a, b in zip(offsets, offsets[1:])]
    assert spelled == list(windows(stream, order, top))
    distinct, times = group(keys)
    grouped = Windows(*spell_keys(packing, distinct), times)
    assert windows_as_dict([grouped]) == Counter(map(tuple, spelled)) and len(set(map(tuple, spelled))) == len(times)


def test_join():
    assert join([], 5, 0).tolist() == [0]
    assert join([[1], [], [0, 2, 0], [0], [3, 0, 0]], 5, 0).tolist() == [0, 1, 0, 2, 0, 3, 0, 0]
    assert join([[1]], 1 << 16, 0).dtype == np.uint16 and join([[1]], (1 << 16) + 1, 0).dtype == np.uint32


def test_files_are_read_piece_by_piece(tmp_path):
    options = CountOptions(order=5, vocab_size=300, end_of_text=EOT)
    text = np.random.default_rng(1).integers(0, 300, 200_000).astype(np.uint16)
    run = Run.of_tokens([text], options, [100, 200])
    assert min(np.diff(run.slices)) > 1 << 18, "each slice takes more than one read"
    (tmp_path / "run").write_bytes(b"before" + run.source)
    layout = {"order": 5, "vocab_size": 300, "end_of_text": EOT}
    for begin, end in zip(run.slices, run.slices[1:]):
        whole = _core.RunSlices([run.source[begin:end]], **layout).spell(10**6)
        from_file = _core.RunSlices([(str(tmp_path / "run"), begin + 6, end + 6)], **layout)
        parts = []
        while not parts or parts[-1][-1]:
            parts.append(from_file.spell(7))
        for at in (1, 2):  # tokens and counts
            np.testing.assert_array_equal(np.concatenate([part[at] for part in parts]), whole[at])


def consume(source, order, vocab_size):
    """All that can be made of a slice ends, or says that the slice is damaged."""
    layout = {"order": order, "vocab_size": vocab_size, "end_of_text": EOT}

    def levels():
        builder = _core.LevelBuilder(**layout, min_counts=[1] * order, most=3)
        slices, contexts = _core.RunSlices(source, **layout), 1
        while builder.add(slices, 5):
            pass
        builder.finish()
        for context_token, context_parent, context_total, context_end, token, times, *_ in builder.take():
            assert (context_token < vocab_size).all() and (token < vocab_size).all()
            assert (context_parent < contexts).all() and (context_total > 0).all() and (times > 0).all()
            assert len(context_end) == len(context_token) and (not len(context_end) or context_end[-1] == len(token))
            contexts = len(context_token)
        assert builder.unigrams().sum() < 1 << 54

    def write():
        slices = _core.RunSlices(source, **layout)
        while slices.write(5)[-1]:
            pass

    def spell():
        slices, more = _core.RunSlices(source, **layout), True
        while more:
            offsets, tokens, counts, more = slices.spell(5)
            assert (tokens >= 0).all() and (tokens < vocab_size).all() and (counts > 0).all()

    for body in (levels, write, spell):
        try:
            body()
        except ValueError as error:
            assert "damaged" in str(error) or "2^53" in str(error)


@settings(max_examples=100)
@given(st.binary(max_size=60), st.integers(1, 7), st.sampled_from([1, 5, 60, 300_000]), st.booleans())
@example(b"\xff" * 60, 7, 300_000, False)
@example(b"\xbf" + b"\xff" * 59, 1, 1, True)
@example(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 1, 5, True)
def test_any_bytes_end_or_are_an_error(data, order, vocab_size, twice):
    consume([data, data[::-1]] if twice else [data], order, vocab_size)


@settings(max_examples=100)
@given(DOCUMENTS, st.integers(1, 6), st.integers(0, 10**6), st.integers(0, 7))
def test_flipped_bits_end_or_are_an_error(documents, order, at, bit):
    options = CountOptions(order=order, vocab_size=6, end_of_text=EOT)
    text = np.array([token for document in documents for token in (*document, EOT)], np.uint16)
    data = bytearray(Run.of_tokens([text], options, []).source)
    if data:
        data[at % len(data)] ^= 1 << bit
    consume([bytes(data)], order, 6)


def test_runs_that_are_cut_and_wrong_text_are_errors(tmp_path):
    options = CountOptions(**LAYOUT)
    run = Run.of_tokens([np.array([1, 2, 3, 1, 2, 0], np.uint16)], options, [])
    (tmp_path / "run").write_bytes(run.source[:-1])

    def read(source, slices=run.slices):
        return [Run(source=source, slices=slices, windows=6, tokens=6)], 0, options

    refuses(ValueError, lambda: merge_slice(*read(tmp_path / "run")).spell(100), "run")
    refuses(ValueError, lambda: merge_slice(*read(tmp_path / "run", [5, 2])), "5", "2")
    refuses(RuntimeError, lambda: merge_slice(*read(tmp_path / "nothing", [0, 2])), "nothing")
    refuses(ValueError, lambda: slice_levels(*read(run.source[:-1] + b"\x80"), lambda parts: None), "windows")
    few = {**LAYOUT, "vocab_size": 2, "starts": []}
    refuses(ValueError, lambda: _core.count_windows([np.array([1, 2], np.uint16)], **few), "token 1", "0..1", "2")
    refuses(TypeError, lambda: _core.count_windows([np.array([1, 2])], **LAYOUT, starts=[]))


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
    """Files of windows are checked before."""
    arrays = (np.array(offsets, np.int64), np.array(tokens, np.int32), np.array(counts, np.int64))
    refuses(ValueError, lambda: _core.run_of_windows(*arrays, **LAYOUT, starts=[]), *message)


KINDS = (pa.list_(pa.int32()), pa.int64())
HEADER = {"format": "rescore-counts", "version": 1, **LAYOUT, "tokens": 0}
NO_COUNTS = CountsHeader(**LAYOUT)


def batch_of(rows):
    """{window: count} as a batch."""
    offsets, tokens = np.cumsum([0, *map(len, rows)], dtype=np.int64), [token for row in rows for token in row]
    return Windows(offsets, np.array(tokens, np.int32), np.array(list(rows.values()), np.int64))


def write(folder, rows, header=None, kinds=KINDS, **options):
    """A folder of counts as some other program may write it."""
    folder.mkdir(exist_ok=True)
    grams, counts = zip(*rows)
    table = pa.table({"ngram": pa.array(grams, kinds[0]), "count": pa.array(counts, kinds[1])})
    pq.write_table(table, folder / "a.parquet", **options)
    header = {**HEADER, "tokenizer": None, "tokens": sum(c or 0 for c in counts), **(header or {})}
    (folder / "counts.json").write_text(json.dumps(header))
    return folder


@settings(max_examples=30)
@given(st.lists(st.integers(0, V - 1), max_size=30), st.integers(1, 4), st.integers(1, 9))
def test_round_trip(tmp_path_factory, stream, order, parts):
    folder = tmp_path_factory.mktemp("counts") / "new" / "folder"
    streams = [[EOT, *part, EOT] for part in np.array_split(np.array(stream, int), parts) if len(part)]
    batches = [batch_of(Counter(map(tuple, windows(part, order, EOT)))) for part in streams]
    given = CountsHeader(order=order, vocab_size=V, end_of_text=EOT, tokenizer="a" * 64)
    header = write_counts(folder, batches, given, file_rows=3)
    assert header.tokens == sum(len(part) - 1 for part in streams)
    opened = open_counts(folder)
    assert opened.header == header and len(opened.paths) >= 1
    assert windows_as_dict(opened.batches()) == windows_as_dict(batches)
    single = [open_counts(path) for path in opened.paths]
    assert windows_as_dict(batch for one in single for batch in one.batches()) == windows_as_dict(batches)


def test_files_and_row_groups_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr(counts_files, "GROUP_ROWS", 4)
    monkeypatch.setattr(counts_files, "READ_ROWS", 3)
    rows = {(EOT, a, b): a + b for a in range(1, 6) for b in range(1, 6)}
    batches = [batch_of({row: count}) for row, count in rows.items()]
    write_counts(tmp_path / "c", batches, NO_COUNTS, file_rows=8)
    opened = open_counts(tmp_path / "c")
    assert [pq.ParquetFile(path).metadata.num_row_groups for path in opened.paths] == [2, 2, 2, 1]
    assert max(len(batch.counts) for batch in opened.batches()) == 3 and windows_as_dict(opened.batches()) == rows


def test_other_writers(tmp_path):
    """Large lists, other columns, several files, hidden files; a window may be in more than one row."""
    folder = write(tmp_path / "c", [((0, 1), 2), ((0, 1), 3)], kinds=(pa.large_list(pa.int32()), pa.int64()))
    (folder / "_SUCCESS").touch()
    (folder / "_x.parquet").write_text("not Parquet")
    assert windows_as_dict(open_counts(folder).batches()) == {(0, 1): 5}
    table = pq.read_table(folder / "a.parquet").append_column("more", [["x", "y"]])
    pq.write_table(table, folder / "a.parquet")
    pq.write_table(table.slice(1), folder / "b.parquet")
    (folder / "counts.json").write_text(json.dumps({**HEADER, "tokenizer": None, "tokens": 8}))
    assert windows_as_dict(open_counts(folder).batches()) == {(0, 1): 8}


@pytest.mark.parametrize(
    "row, message",
    [
        (((0,), 1), ["row 1", "2..3"]),
        (((0, 1), 0), ["row 1", "1..70368744177664"]),
        (((0, 1), 1 << 62), ["row 1", "1..70368744177664", "4611686018427387904"]),
        (((1, 2, V), 1), ["row 1", "0..5", "6"]),
        (((1, 2), 1), ["row 1", "3", "2"]),
        (((1, 0, 2), 1), ["row 1", "0"]),
        ((None, 1), ["nulls"]),
        (((1, None, 2), 1), ["nulls"]),
        (((1, 3, 2), None), ["nulls"]),
        (((1, 2, 3, 4, 5, 1, 2, 3), 1), ["6", "2", "11"]),
    ],
)
def test_rows_refused(tmp_path, row, message):
    rows = [((0, 1, 2), 1)] * 2 + [((0, 1, 2), 1), row]
    folder = write(tmp_path / "c", rows, {"tokens": 4}, row_group_size=2)
    refuses(ValueError, lambda: list(open_counts(folder).batches()), "a.parquet", "1", *message)


def test_the_row_is_that_of_the_group(tmp_path, monkeypatch):
    """Also where a group is read in several batches."""
    monkeypatch.setattr(counts_files, "READ_ROWS", 2)
    folder = write(tmp_path / "c", [((0, 1, 2), 1)] * 5 + [((1, 2), 1)], {"tokens": 6})
    refuses(ValueError, lambda: list(open_counts(folder).batches()), "a.parquet", "row group 0, row 5")


def test_columns_refused(tmp_path):
    for kinds, message in [
        ((pa.list_(pa.int64()), pa.int64()), ["column ngram", "list<int32>", "int64>"]),
        ((pa.list_(pa.int32()), pa.int32()), ["column count", "int32", "int64"]),
        ((pa.list_(pa.int32()), pa.float64()), ["column count", "double", "int64"]),
    ]:
        with refused(ValueError, "a.parquet", *message):
            list(open_counts(write(tmp_path / "c", [((0, 1), 1)], kinds=kinds)).batches())
    pq.write_table(pa.table({"gram": [1]}), tmp_path / "c" / "a.parquet")
    refuses(ValueError, lambda: list(open_counts(tmp_path / "c").batches()), "a.parquet", "gram")
    (tmp_path / "c" / "a.parquet").write_bytes(b"nothing")
    refuses(ValueError, lambda: list(open_counts(tmp_path / "c").batches()), "a.parquet")


def test_wrong_headers_and_missing_files(tmp_path):
    folder = write(tmp_path / "c", [((0, 1), 2)], {"tokens": 5})
    refuses(ValueError, lambda: list(open_counts(folder).batches()), "5", "counts.json", "2")
    (folder / "a.parquet").unlink()
    refuses(ValueError, lambda: open_counts(folder), "counts.json")
    write(folder, [((0, 1), 2)])
    for text in (json.dumps(HEADER), "[]", "{", '{"format": "a", "format": "rescore-counts"}', " " * 70_000):
        (folder / "counts.json").write_text(text)
        refuses(ValueError, lambda: open_counts(folder), "counts.json")
    (folder / "counts.json").unlink()
    refuses(ValueError, lambda: open_counts(folder), "counts.json")
    refuses(ValueError, lambda: open_counts(tmp_path / "x"), "x")
    refuses(FileNotFoundError, lambda: open_counts(tmp_path / "x.parquet"), "counts.json")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": "other"}, ["format", "'other'"]),
        ({"version": 2}, ["version", "1", "2"]),
        ({"order": 8}, ["1..7", "8"]),
        ({"vocab_size": 0}, ["vocabulary size", "1..16777216", "0"]),
        ({"end_of_text": V}, ["0..5", "6"]),
        ({"tokens": -1}, ["tokens", "-1"]),
        ({"tokens": 1 << 50}, ["tokens", "70368744177664", "1125899906842624"]),
        ({"tokenizer": "A" * 64}, ["tokenizer"]),
        ({"more": 1}, ["'more'"]),
    ],
)
def test_headers_refused(tmp_path, changes, message):
    folder = write(tmp_path / "c", [((0, 1), 2)], changes)
    refuses(ValueError, lambda: open_counts(folder), "counts.json", *message)


def test_nothing_stays_of_what_fails(tmp_path):
    folder, good = tmp_path / "c", batch_of({(0, 1): 1})

    def batches():
        yield good
        raise ValueError("a run of counts: damaged")

    refuses(ValueError, lambda: write_counts(folder, batches(), NO_COUNTS, file_rows=1), "damaged")
    assert not list(folder.iterdir())
    (folder / "mine").touch()
    refuses(ValueError, lambda: write_counts(folder, [good], NO_COUNTS), "c")
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_damaged_bytes_are_noticed(tmp_path):
    """Any byte changed: an error, or nothing that matters."""
    rows = {(EOT, a, b): a + b for a in range(1, 6) for b in range(1, 6)}
    write_counts(tmp_path / "c", [batch_of(rows)], NO_COUNTS)
    (path,) = open_counts(tmp_path / "c").paths
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        try:
            assert windows_as_dict(open_counts(tmp_path / "c").batches()) == rows, at
        except ValueError as error:
            assert "part-00000.parquet: " in str(error) or "add up to" in str(error)
