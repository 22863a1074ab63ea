"""Drafts as Parquet and JSON lines: both equal, exact, and consistent with the replay."""

import io
import json

import numpy as np
import pytest
from support import dumps

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay import rows
from rescore.decode.replay.draft_writer import DraftWriter
from rescore.decode.replay.outcome import accepted_of_drafts
from rescore.lattice.dump import Dump
from rescore.lm.build import build

COLUMNS = ["dump", "task", "file", "sequence", "position", "rank", "tokens", "cost", "accepted"]


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    """(block, drafts, visited) of every block of a dump, in blocks of few rows."""
    path = tmp_path_factory.mktemp("drafts") / "dump"
    made = dumps.write(path, made=dumps.sequences(count=10))
    rescorer = Rescorer(
        build([sequence["tokens"] for sequence in made], order=3, vocab_size=dumps.V, end_of_text=0), alpha=0.5
    )
    found = []
    for block in Dump.open(path).blocks(rows=20):
        one = rows.paths(rescorer, {"all": 300}).outcomes(block)["all"]
        found.append((block, one.drafts, one.visited))
    return found


def written(suffix: str, steps, dump: str = "d") -> bytes:
    stream = io.BytesIO()
    with DraftWriter(stream, suffix) as writer:
        for step in steps:
            writer.add(dump, *step)
    return stream.getvalue()


def test_rows(steps):
    rows = [json.loads(line) for line in written(".jsonl", steps).splitlines()]
    assert all(list(row) == COLUMNS for row in rows)
    number = 0
    for block, drafts, visited in steps:
        for at in visited.tolist():
            sequence = int(np.searchsorted(block.offsets, at, side="right")) - 1
            for rank in range(int(drafts.count[at])):
                row, draft = rows[number], drafts.tokens[at, rank]
                assert (row["dump"], row["task"], row["file"]) == ("d", block.task, block.file)
                assert (
                    row["sequence"] == block.first_sequence + sequence
                    and row["position"] == at - block.offsets[sequence]
                )
                assert row["rank"] == rank and row["tokens"] == draft[draft >= 0].tolist()
                assert np.float32(row["cost"]) == drafts.cost[at, rank]
                assert row["accepted"] == accepted_of_drafts(draft[None, None], block.truth([at]))[0]
                number += 1
    assert number == len(rows) > 0 and max(row["rank"] for row in rows) == dumps.K ** (dumps.H - 1) - 1


def test_formats_are_equal(steps):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(io.BytesIO(written(".parquet", steps)))
    rows = [json.loads(line) for line in written(".jsonl", steps).splitlines()]
    assert table.column_names == COLUMNS
    for name in COLUMNS:
        column = table.column(name).to_pylist()
        assert column == [float(np.float32(row[name])) if name == "cost" else row[name] for row in rows]


def test_nothing_visited(steps):
    """A dump of single tokens has no drafts, but its files are valid."""
    parquet = pytest.importorskip("pyarrow.parquet")
    block, drafts, _ = steps[0]
    assert written(".jsonl", [(block, drafts, np.zeros(0, np.int64))]) == b""
    for some in ([], [(block, drafts, np.zeros(0, np.int64))]):
        assert parquet.read_table(io.BytesIO(written(".parquet", some))).column_names == COLUMNS


def test_names_that_are_no_text(steps):
    parquet = pytest.importorskip("pyarrow.parquet")
    name = b"d\xff".decode("utf-8", "surrogateescape")
    assert parquet.read_table(io.BytesIO(written(".parquet", steps[:1], name))).column("dump")[0].as_py() == "d?"
    assert json.loads(written(".jsonl", steps[:1], name).splitlines()[0])["dump"] == "d?"


def test_unknown_suffix():
    with pytest.raises(ValueError, match="drafts: expected .parquet or .jsonl, got .csv"):
        DraftWriter(io.BytesIO(), ".csv")
    with pytest.raises(ValueError, match="got no suffix"):
        DraftWriter(io.BytesIO(), "")


@pytest.mark.filterwarnings("error")
def test_an_error_on_the_way_stays_the_one_error(steps):
    pytest.importorskip("pyarrow")

    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() > 10:
                raise OSError(28, "No space left on device")
            return super().write(data)

    for suffix in (".parquet", ".jsonl"):
        with pytest.raises(OSError, match="No space left"), DraftWriter(Full(), suffix) as writer:
            for step in steps:
                writer.add("d", *step)
