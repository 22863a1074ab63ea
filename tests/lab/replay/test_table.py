"""Passes and drafts as Parquet and JSON lines: both equal, exact, and consistent with the replay."""

import gzip
import io
import json
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np
import pytest
from pyarrow import parquet
from support import dumps
from support.refusals import refused, refuses

from rescore.decode.draft import registry
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.lab.replay import table
from rescore.decode.lab.replay.measures import Tally
from rescore.decode.lab.replay.replay import OracleReplay, accepted_of_drafts
from rescore.decode.lab.replay.rows import path_replay, tree_replay
from rescore.decode.lab.replay.run import replay_dump
from rescore.decode.lab.replay.table import DRAFTS, PASSES, RecordWriter, read_table, write_drafts, write_passes
from rescore.lattice.dump import Dump

COLUMNS = list(DRAFTS)


@pytest.fixture(scope="module")
def steps(dump, model):
    """(block, lines) of every block of few rows."""
    drafter = path_replay(Rescorer(model, alpha=0.5), {"all": 300})
    return [(block, drafter.lines(block)["all"]) for block in dump.blocks(rows=20)]


def written(suffix: str, dump: Dump, steps) -> bytes:
    stream = io.BytesIO()
    with RecordWriter(stream, suffix, DRAFTS) as writer:
        for step in steps:
            write_drafts(writer, dump, *step)
    return stream.getvalue()


def test_drafts(dump, steps):
    """Row by row as JSON lines, and the same as Parquet; a dump of single tokens has none, but its files are valid."""
    rows = [json.loads(line) for line in written(".jsonl", dump, steps).splitlines()]
    assert all(list(row) == COLUMNS for row in rows)
    number, before = 0, {"first": 0, "second": 0}  # sequences of earlier blocks
    for block, lines in steps:
        drafts = lines.drafts
        for place, at in enumerate(lines.rows(block).tolist()):
            sequence = int(np.searchsorted(block.offsets, at, side="right")) - 1
            for rank in range(int(drafts.count[place])):
                row, draft = rows[number], drafts.tokens[place, rank]
                assert (row["dump"], row["task"]) == (str(dump.path), block.task)
                assert row["sequence"] == before[block.task] + sequence
                assert row["position"] == at - block.offsets[sequence]
                assert row["rank"] == rank and row["tokens"] == draft[draft >= 0].tolist()
                assert np.float32(row["cost"]) == drafts.cost[place, rank]
                assert row["accepted"] == accepted_of_drafts(draft[None, None], block.truth([at]))[0]
                number += 1
        before[block.task] += block.sequences
    assert number == len(rows) > 0 and max(row["rank"] for row in rows) == dumps.K ** (dumps.H - 1) - 1
    table = parquet.read_table(io.BytesIO(written(".parquet", dump, steps)))
    assert table.column_names == COLUMNS
    assert table.to_pylist() == [{**row, "cost": float(np.float32(row["cost"]))} for row in rows]
    ((block, lines), *_) = steps
    nothing = [(block, replace(lines, visited=np.zeros(len(lines.visited), bool)))]
    assert written(".jsonl", dump, nothing) == b""
    assert parquet.read_table(io.BytesIO(written(".parquet", dump, nothing))).column_names == COLUMNS


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_an_error_on_the_way_stays_the_one_error(dump, steps, suffix):
    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() > 10:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with refused(OSError, "space"), RecordWriter(Full(), suffix, DRAFTS) as writer:
        for step in steps:
            write_drafts(writer, dump, *step)


@pytest.fixture(scope="module")
def passes(dump):
    """The result of a replay, the lines of its passes, and their files by suffix."""
    files = {".jsonl": io.BytesIO(), ".parquet": io.BytesIO()}
    base = replace(path_replay(Rescorer(), {"base": 1}), everywhere=True)
    trees = tree_replay(Rescorer(), {"heads-tree 2": 2, "heads-tree 6": 6})
    with ExitStack() as stack:
        writers = [stack.enter_context(RecordWriter(file, suffix, PASSES)) for suffix, file in files.items()]
        listeners = [partial(write_passes, writer, dump) for writer in writers]
        result = replay_dump(dump, [base, trees, OracleReplay(widths={"oracle": None})], listeners=listeners)
    return result, [json.loads(line) for line in files[".jsonl"].getvalue().splitlines()], files


def visits(lines):
    """The lines of the passes that decoding makes, by task, drafter and budget."""
    found = defaultdict(list)
    for one in lines:
        if one["visited"]:
            found[one["task"], one["drafter"], one["budget"]].append(one)
    return found


def test_measures_are_sums_over_the_lines(passes):
    """Counted here line by line."""
    result, lines, _ = passes
    assert all(list(line) == list(PASSES) for line in lines)
    found = {(task, registry.row_name(*row)): own for (task, *row), own in visits(lines).items()}
    for task in result.tasks:
        for name, tally in task.tallies.items():
            own = found[task.task, name]
            assert sum(one["tokens"] for one in own) / len(own) == tally.block_efficiency
            assert sum(one["drafted"] for one in own) == tally.verified
            assert sum(one["accepted"] for one in own) == tally.accepted
            by_sequence = Counter(one["sequence"] for one in own)
            assert [by_sequence[number] for number in sorted(by_sequence)] == tally.passes.tolist()


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_read_again(passes, tmp_path, monkeypatch, suffix):
    """Measures of the lines read from a file, some at a time, are those of the replay."""
    monkeypatch.setattr(table, "CHUNK", 7)
    result, _, files = passes
    path = tmp_path / f"passes{suffix}"
    path.write_bytes(files[suffix].getvalue())
    found = defaultdict(Tally)
    for group, own in read_table(path):
        found[group["task"], registry.row_name(group["drafter"], group["budget"])].add(own)
    for task in result.tasks:
        for name, tally in task.tallies.items():
            again = found[task.task, name]
            assert (again.accepted, again.verified) == (tally.accepted, tally.verified)
            for counts in ("tokens", "passes", "by_slot", "by_length"):
                np.testing.assert_array_equal(getattr(again, counts), getattr(tally, counts))


def test_files_are_read_by_content(passes, tmp_path):
    files = passes[2]
    path = tmp_path / "passes.jsonl"
    path.write_bytes(gzip.compress(files[".jsonl"].getvalue()))
    assert sum(len(own.sequence) for _, own in read_table(path)) == len(passes[1])
    path.write_bytes(path.read_bytes()[:-8])
    refuses(ValueError, lambda: list(read_table(path)), "passes.jsonl", "gzip")


@pytest.mark.parametrize(
    "content, told",
    [
        ("nothing", ["b.jsonl:1"]),
        ('{"dump": "d"}', ["'task'"]),
        ({"tokens": 1.5}, ["tokens[0]", "1.5"]),
        ({"position": None}, ["None", "position[0]"]),
        ({"drafted": 2**31}, ["drafted[0]", "2147483647", "2147483648"]),
    ],
)
def test_what_is_no_table_is_refused(passes, tmp_path, content, told):
    path = tmp_path / "b.jsonl"
    path.write_text(content if isinstance(content, str) else json.dumps({**passes[1][0], **content}))
    refuses(ValueError, lambda: list(read_table(path)), *told)
    path = tmp_path / "b.parquet"
    path.write_bytes(b"PAR1")
    refuses(ValueError, lambda: list(read_table(path)), "b.parquet")
    refuses(ValueError, lambda: RecordWriter(io.BytesIO(), ".csv", DRAFTS), "lines", ".csv")


def test_lines_follow_the_texts(dump, passes):
    """A pass begins where the one before ends; the last one ends with the text; the prompt's yields one token."""
    lengths = {
        (block.task, dump.number_of(block) + place): int(length)
        for block in dump.blocks(rows=20)
        for place, length in enumerate(np.diff(block.offsets))
    }
    for (task, *_), lines in visits(passes[1]).items():
        assert {one["sequence"] for one in lines} == {number for name, number in lengths if name == task}
        for sequence, own in groupby(lines, itemgetter("sequence")):
            first, *others = own
            assert (first["position"], first["tokens"], first["drafted"], first["seconds"]) == (-1, 1, 0, None)
            at = 0
            for one in others:
                assert one["position"] == at and one["accepted"] <= one["drafted"]
                at += one["tokens"]
            assert at == lengths[task, sequence] - 1


def test_what_is_evaluated_for_comparison_is_not_visited(dump, passes):
    """`base` drafts at every row here."""
    positions = sum(task.rows - task.sequences for task in dump.header.tasks)
    base = [one for one in passes[1] if one["drafter"] == "base" and one["position"] >= 0]
    assert len(base) == positions > sum(one["visited"] for one in base) > 0
