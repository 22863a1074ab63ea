"""Window counts on disk: what is written is read, and what a stranger wrote is checked."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.counts import spell_keys, windows_as_dict
from support.refusals import refused, refuses

from rescore.lm.build import counts_files
from rescore.lm.build.counts import Windows
from rescore.lm.build.counts_files import open_counts, write_counts
from rescore.lm.build.windows import CountsHeader, Packing, group

V, EOT = 6, 0
KINDS = (pa.list_(pa.int32()), pa.int64())
HEADER = {"format": "rescore-counts", "version": 1, "order": 3, "vocab_size": V, "end_of_text": EOT, "tokens": 0}

NO_COUNTS = CountsHeader(order=3, vocab_size=V, end_of_text=EOT)


def windows(rows):
    """{window: count} as a batch."""
    offsets, tokens = np.cumsum([0, *map(len, rows)], dtype=np.int64), [token for row in rows for token in row]
    return Windows(offsets, np.array(tokens, np.int32), np.array(list(rows.values()), np.int64))


def of_stream(stream, order):
    packing = Packing(order=order, vocab_size=V, end_of_text=EOT)
    keys, count = group(packing.keys(np.array(stream, np.uint16)))
    return Windows(*spell_keys(packing, keys), count)


def write(folder, rows, header=None, kinds=KINDS, name="a.parquet", **options):
    """A folder of counts as some other program may write it."""
    folder.mkdir(exist_ok=True)
    grams, counts = [row[0] for row in rows], [row[1] for row in rows]
    table = pa.table({"ngram": pa.array(grams, kinds[0]), "count": pa.array(counts, kinds[1])})
    pq.write_table(table, folder / name, **options)
    (folder / "counts.json").write_text(
        json.dumps({**HEADER, "tokenizer": None, "tokens": sum(c or 0 for c in counts), **(header or {})})
    )
    return folder


@settings(max_examples=30)
@given(st.lists(st.integers(0, V - 1), max_size=30), st.integers(1, 4), st.integers(1, 9))
def test_round_trip(tmp_path_factory, stream, order, parts):
    folder = tmp_path_factory.mktemp("counts") / "new" / "folder"
    streams = [[EOT, *part, EOT] for part in np.array_split(np.array(stream, int), parts) if len(part)]
    batches = [of_stream(part, order) for part in streams]
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
    batches = [windows({row: count}) for row, count in rows.items()]
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


def test_missing_and_surplus_files(tmp_path):
    folder = write(tmp_path / "c", [((0, 1), 2)], {"tokens": 5})
    refuses(ValueError, lambda: list(open_counts(folder).batches()), "5", "counts.json", "2")
    (folder / "a.parquet").unlink()
    refuses(ValueError, lambda: open_counts(folder), "counts.json")
    (folder / "counts.json").unlink()
    refuses(ValueError, lambda: open_counts(folder), "counts.json")
    refuses(ValueError, lambda: open_counts(tmp_path / "x"), "x")
    with pytest.raises(FileNotFoundError):
        open_counts(tmp_path / "x.parquet")


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


def test_headers_that_are_no_json(tmp_path):
    folder = write(tmp_path / "c", [((0, 1), 2)])
    for text in (json.dumps(HEADER), "[]", "{", '{"format": "a", "format": "rescore-counts"}', " " * 70_000):
        (folder / "counts.json").write_text(text)
        refuses(ValueError, lambda: open_counts(folder), "counts.json")


def test_nothing_stays_of_what_fails(tmp_path):
    folder = tmp_path / "c"
    good = windows({(0, 1): 1})

    def batches():
        yield good
        raise ValueError("a run of counts: damaged")

    with refused(ValueError, "damaged"):
        write_counts(folder, batches(), NO_COUNTS, file_rows=1)
    assert not list(folder.iterdir())
    (folder / "mine").touch()
    refuses(ValueError, lambda: write_counts(folder, [good], NO_COUNTS), "c")
    assert [path.name for path in folder.iterdir()] == ["mine"]


def test_damaged_bytes_are_noticed(tmp_path):
    """Any byte changed: an error, or nothing that matters."""
    rows = {(EOT, a, b): a + b for a in range(1, 6) for b in range(1, 6)}
    write_counts(tmp_path / "c", [windows(rows)], NO_COUNTS)
    (path,) = open_counts(tmp_path / "c").paths
    whole = path.read_bytes()
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        try:
            assert windows_as_dict(open_counts(tmp_path / "c").batches()) == rows, at
        except ValueError as error:
            assert "part-00000.parquet: " in str(error) or "add up to" in str(error)
