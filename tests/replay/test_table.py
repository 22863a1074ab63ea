"""Passes and drafts as Parquet and JSON lines: both equal, exact, and consistent with the replay."""

import io
import json
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from pyarrow import parquet
from support import dumps
from support.refusals import refused, refuses

from rescore.decode.draft import registry
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows, table
from rescore.decode.replay.measures import Tally
from rescore.decode.replay.replay import OracleReplay, accepted_of_drafts
from rescore.decode.replay.run import replay_dump
from rescore.decode.replay.table import DRAFTS, PASSES, RecordWriter, read_table, write_drafts, write_passes
from rescore.lattice.dump import Dump
from rescore.lm.build.in_memory import build

COLUMNS = list(DRAFTS)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """The dump, and (block, drafts, visited) of every block of few rows."""
    path = tmp_path_factory.mktemp("drafts") / "dump"
    texts = [sequence["tokens"] for sequence in dumps.write(path, made=dumps.sequences(count=10))]
    dump, rescorer = Dump.open(path), Rescorer(build(texts, order=3, vocab_size=dumps.V, end_of_text=0), alpha=0.5)
    drafter, blocks = rows.paths(rescorer, {"all": 300}), list(dump.blocks(rows=20))
    outcomes = [drafter.outcomes(block)["all"] for block in blocks]
    found = [(block, one.drafts, one.visited) for block, one in zip(blocks, outcomes)]
    return dump, found


def written(suffix: str, dump: Dump, steps) -> bytes:
    stream = io.BytesIO()
    with RecordWriter(stream, suffix, DRAFTS) as writer:
        for step in steps:
            write_drafts(writer, dump, *step)
    return stream.getvalue()


def test_rows(steps):
    rows = [json.loads(line) for line in written(".jsonl", *steps).splitlines()]
    assert all(list(row) == COLUMNS for row in rows)
    number, before = 0, {"first": 0, "second": 0}  # sequences of earlier blocks
    for block, drafts, visited in steps[1]:
        for at in visited.tolist():
            sequence = int(np.searchsorted(block.offsets, at, side="right")) - 1
            for rank in range(int(drafts.count[at])):
                row, draft = rows[number], drafts.tokens[at, rank]
                assert (row["dump"], row["task"]) == (str(steps[0].path), block.task)
                assert row["sequence"] == before[block.task] + sequence
                assert row["position"] == at - block.offsets[sequence]
                assert row["rank"] == rank and row["tokens"] == draft[draft >= 0].tolist()
                assert np.float32(row["cost"]) == drafts.cost[at, rank]
                assert row["accepted"] == accepted_of_drafts(draft[None, None], block.truth([at]))[0]
                number += 1
        before[block.task] += block.sequences
    assert number == len(rows) > 0 and max(row["rank"] for row in rows) == dumps.K ** (dumps.H - 1) - 1


def test_formats_are_equal(steps):
    table = parquet.read_table(io.BytesIO(written(".parquet", *steps)))
    rows = [json.loads(line) for line in written(".jsonl", *steps).splitlines()]
    assert table.column_names == COLUMNS
    assert table.to_pylist() == [{**row, "cost": float(np.float32(row["cost"]))} for row in rows]


def test_unknown_suffix():
    refuses(ValueError, lambda: RecordWriter(io.BytesIO(), ".csv", DRAFTS), "lines", ".csv")


def test_nothing_visited(steps):
    """A dump of single tokens has no drafts, but its files are valid."""
    dump, ((block, drafts, _), *_) = steps
    nothing = [(block, drafts, np.zeros(0, np.int64))]
    assert written(".jsonl", dump, nothing) == b""
    assert parquet.read_table(io.BytesIO(written(".parquet", dump, nothing))).column_names == COLUMNS


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_an_error_on_the_way_stays_the_one_error(steps, suffix):
    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() > 10:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with refused(OSError, "space"), RecordWriter(Full(), suffix, DRAFTS) as writer:
        for step in steps[1]:
            write_drafts(writer, steps[0], *step)


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """The dump, the result of a replay, the lines of its passes, and their files by suffix."""
    path = tmp_path_factory.mktemp("passes") / "dump"
    dumps.write(path, made=dumps.sequences(count=10))
    dump, files = Dump.open(path), {".jsonl": io.BytesIO(), ".parquet": io.BytesIO()}
    base = replace(rows.paths(Rescorer(), {"base": 1}), everywhere=True)
    trees = rows.trees(Rescorer(), {"heads-tree 2": 2, "heads-tree 6": 6})
    with ExitStack() as stack:
        writers = [stack.enter_context(RecordWriter(file, suffix, PASSES)) for suffix, file in files.items()]
        listeners = [partial(write_passes, writer, dump) for writer in writers]
        result = replay_dump(dump, [base, trees, OracleReplay(widths={"oracle": None})], listeners=listeners)
    return dump, result, [json.loads(line) for line in files[".jsonl"].getvalue().splitlines()], files


def test_measures_are_sums_over_the_lines(passes):
    """Counted here line by line, of the passes that decoding makes."""
    _, result, lines, _ = passes
    assert all(list(line) == list(PASSES) for line in lines)
    found = defaultdict(list)
    for one in lines:
        if one["visited"]:
            found[one["task"], registry.row_name(one["drafter"], one["budget"])].append(one)
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
    _, result, _, files = passes
    path = tmp_path / f"passes{suffix}"
    path.write_bytes(files[suffix].getvalue())
    found = defaultdict(list)
    for group, own in read_table(path):
        found[group["task"], registry.row_name(group["drafter"], group["budget"])].append(Tally.of_lines(own))
    for task in result.tasks:
        for name, tally in task.tallies.items():
            again = Tally.joined(found[task.task, name])
            assert (again.accepted, again.verified) == (tally.accepted, tally.verified)
            for counts in ("tokens", "passes", "by_slot", "by_length"):
                np.testing.assert_array_equal(getattr(again, counts), getattr(tally, counts))


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
    path.write_text(content if isinstance(content, str) else json.dumps({**passes[2][0], **content}))
    refuses(ValueError, lambda: list(read_table(path)), *told)
    path = tmp_path / "b.parquet"
    path.write_bytes(b"PAR1")
    refuses(ValueError, lambda: list(read_table(path)), "results")


def test_lines_follow_the_texts(passes):
    """A pass begins where the one before ends; the last one ends with the text; the prompt's yields one token."""
    dump, _, lines, _ = passes
    lengths = {
        (block.task, dump.number_of(block) + place): int(length)
        for block in dump.blocks(rows=20)
        for place, length in enumerate(np.diff(block.offsets))
    }
    found = defaultdict(list)
    for one in lines:
        if one["visited"]:
            found[one["task"], one["sequence"], one["drafter"], one["budget"]].append(one)
    assert {key[:2] for key in found} == set(lengths)
    for (task, sequence, *_), own in found.items():
        at = -1
        for one in own:
            assert one["position"] == at and one["accepted"] <= one["drafted"]
            at += one["tokens"]
        assert at == lengths[task, sequence] - 1
        first = own[0]
        assert (first["position"], first["tokens"], first["drafted"], first["seconds"]) == (-1, 1, 0, None)


def test_what_is_evaluated_for_comparison_is_not_visited(passes):
    """`base` drafts at every row here."""
    dump, _, lines, _ = passes
    positions = sum(task.rows - task.sequences for task in dump.header.tasks)
    base = [one for one in lines if one["drafter"] == "base" and one["position"] >= 0]
    assert len(base) == positions > sum(one["visited"] for one in base) > 0
