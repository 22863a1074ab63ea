"""tools/bench/search.py: its lattices, and that nothing is timed whose answers differ."""

import sys

import numpy as np
import pytest
from support import dumps
from support.refusals import assert_named, refuses
from support.tools import load_tool

from rescore.lattice.dump import Dump
from rescore.lm.model.ngram import NGram

search = load_tool("bench/search")


@pytest.fixture
def compiled(monkeypatch, program):
    """The C++ program compiled once for all tests."""
    monkeypatch.setattr(search, "compile_search", lambda path, options: program)


def run(world, monkeypatch, *more):
    given = (world / "dump", world / "lm.ngram", "--slots", dumps.H, "--candidates", dumps.K, "--lattices", 6)
    words = [*given, "--rounds", 1, "--batch", 2, "--threads", 1, *more]
    monkeypatch.setattr(sys, "argv", ["search.py", *map(str, words)])
    search.main()


def test_joined_rows_follow_each_other(world):
    """The slots of a row, then those of the row T later, with the first row's history."""
    dump, model = Dump.open(world / "dump"), NGram.open(world / "lm.ngram")
    own, slots = dump.slots, 2 * dump.slots - 1
    found, histories = search.lattices(dump, model, count=6, slots=slots, width=dumps.K)
    assert found.ids.shape[1:] == (slots, dumps.K) and len(found.ids) == len(histories) >= 6
    rows = {}
    for block in dump.blocks():
        ids = block.sausages().ids
        for row in range(block.rows - own):
            if block.sequence_of[row] == block.sequence_of[row + own]:
                key = np.concatenate([ids[row], ids[row + own]])[:slots].tobytes()
                rows[key] = block.histories(np.array([row]), model.order - 1)[0].tolist()
    for ids, history in zip(found.ids, histories.tolist()):
        assert rows[np.ascontiguousarray(ids).tobytes()] == history
    refuses(ValueError, lambda: search.lattices(dump, model, count=6, slots=slots, width=dumps.K + 1), dumps.K + 1)


def test_every_row_is_timed(world, monkeypatch, capsys, compiled):
    run(world, monkeypatch, "--cold", 1, "--paths", 1, 4)
    lines = capsys.readouterr().out.splitlines()
    names = [f"{cold}{kind}{n}" for cold in ("", "cold, ") for n in (16, 64) for kind in ("tree ", "open tree ")]
    for name in (*names, "1 paths", "4 paths", "cold, 4 paths", "batch 2, 1 threads"):
        assert sum(line.startswith(name) for line in lines) == 1, name
    assert all(("PhiMatcher" in line) == ("paths    " in line) for line in lines if "ours" in line)


def test_a_wrong_answer_is_not_timed(world, monkeypatch, compiled):
    right = search.run_search

    def wrong(*given, **options):
        answers = right(*given, **options)
        cost, tokens = answers.strings[2][0]
        answers.strings[2][0] = (cost - 0.001, tokens)
        return answers

    monkeypatch.setattr(search, "run_search", wrong)
    refuses(ValueError, lambda: run(world, monkeypatch, "--cold", 0), "16", "2", "PhiMatcher", "0")


def test_without_openfst(world, monkeypatch, capsys):
    def unavailable(path, options):
        raise search.OpenFstUnavailable("no g++ on the path")

    monkeypatch.setattr(search, "compile_search", unavailable)
    run(world, monkeypatch, "--cold", 0)
    out = capsys.readouterr().out
    assert "16 paths" in out and "PhiMatcher" not in out
    assert_named(out, ["without OpenFst"])
