"""`rescore bench search`: lattices of any size, engines that must agree, what is reported."""

from __future__ import annotations

import json

import cli
import dumps
import numpy as np
import pytest

from rescore.decode import bench_search
from rescore.decode.bench_lattices import lattices_of, widened
from rescore.decode.bench_search import (
    ANCHOR,
    OURS,
    PEERS,
    PYTHON,
    TABLE_12,
    TABLE_13,
    Disagreement,
    Engines,
    check_equal,
    figures,
    least_times,
)
from rescore.decode.cli.actions import bench_search as actions
from rescore.decode.openfst import search
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    cli.make_model(folder / "lm.ngram", cli.make_dump(folder / "dump"))
    return folder


def lattices(world, **changes):
    dump, model = Dump.open(world / "dump"), NGram.open(world / "lm.ngram")
    return dump, model, lattices_of(dump, model, **{"count": 6, "slots": 2 * dumps.H - 3, "width": dumps.K + 2, "seed": 1, **changes})


def test_joined_rows_follow_each_other(world):
    """Slots of a row, then those of the row T behind it, whatever else is drawn."""
    dump, model, found = lattices(world)
    own = dumps.H - 1
    assert found.parts == 2 and found.sausage.ids.shape == (6, 2 * own - 1, dumps.K + 2)
    rows = {}
    for block in dump.blocks():
        ids = block.sausages().ids
        for row in range(block.rows - own):
            if block.sequence_of[row] == block.sequence_of[row + own]:
                key = np.concatenate([ids[row], ids[row + own]])[: 2 * own - 1].tobytes()
                rows[key] = block.histories(np.array([row]), model.order - 1)[0].tolist()
    for ids, history in zip(found.sausage.ids, found.histories.tolist()):
        assert rows[np.ascontiguousarray(ids[:, : dumps.K]).tobytes()] == history


def test_parts_of_rows_are_the_dump_s_own(world):
    dump, _, found = lattices(world, slots=2, width=3)
    every = np.concatenate([block.sausages(k=3).ids[:, :2] for block in dump.blocks()])
    assert (found.parts, found.drawn, found.sausage.ids.shape) == (1, 0, (6, 2, 3))
    assert all((every == ids).all(axis=(1, 2)).any() for ids in found.sausage.ids)
    assert found.cut(1, 2).ids.tolist() == found.sausage.ids[:, :1, :2].tolist()


def test_drawn_candidates(world):
    """Distinct tokens behind the own ones, dearer and dearer, the same for the same seed, more often those that the model expects."""
    _, model, found = lattices(world)
    sausage = found.sausage
    assert found.drawn == 2 and (np.diff(sausage.cost, axis=2) >= 0).all()
    assert all(len(set(slot)) == dumps.K + 2 for slot in sausage.ids.reshape(-1, dumps.K + 2).tolist())
    assert lattices(world)[2].sausage.ids.tolist() == sausage.ids.tolist() != lattices(world, seed=2)[2].sausage.ids.tolist()
    narrow = found.cut(4, 1)[np.zeros(500, np.int64)]
    many = widened(narrow, np.repeat(found.histories[:1], 500, axis=0), model, 1, 3)
    history = found.histories[0]
    p = np.exp(-model.distribution(model.start(history[history >= 0])).astype(np.float64))
    for slot in range(4):
        own = p.copy()
        own[narrow.ids[0, slot, 0]] = 0
        shares = np.bincount(many.ids[:, slot, 1], minlength=len(p)) / 500
        np.testing.assert_allclose(shares, own / own.sum(), atol=5 * 0.5 / np.sqrt(500))


def test_refused_sizes(world):
    with pytest.raises(ValueError, match=f"expected a sequence of more than {99 * (dumps.H - 1)} tokens for lattices of {100 * (dumps.H - 1)} slots, got none"):
        lattices(world, slots=100 * (dumps.H - 1))
    with pytest.raises(ValueError, match=f"more candidates of {dumps.V} tokens, got {dumps.V}"):
        lattices(world, width=dumps.V + dumps.K)


def test_figures_by_hand():
    found = figures({OURS: np.array([1.0, 2.0, 3.0]), ANCHOR: np.array([10.0, 30.0, 20.0])})
    assert found[ANCHOR] == pytest.approx({"median_us": 20, "p99_us": 29.8, "mean_us": 20, "times_ours": 10})
    assert "times_ours" not in found[OURS]


def test_the_first_round_does_not_count():
    calls: list[int] = []
    assert (least_times([lambda: calls.append(1)] * 2, 3) >= 0).all() and len(calls) == 8


def test_engines_that_disagree():
    with pytest.raises(Disagreement, match="x and ours disagree on lattice 1: string 0: cost 1.0 against 2.0"):
        check_equal("x", [[(1.0, (1,))]] * 2, [[(1.0, (1,))], [(2.0, (1,))]])
    with pytest.raises(Disagreement, match="x: 1 answers to 2 lattices"):
        check_equal("x", [[], []], [[]])


def call(world, *more):
    return ["bench", "search", "--dump", world / "dump", "--lm", world / "lm.ngram", "--lattices", 3, "--rounds", 1, *more]


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(search.shutil, "which", lambda name: None)


def test_report(world, capsys, monkeypatch):
    monkeypatch.setattr(actions, "OPTIMISED", ("-O1",))
    report = cli.figures(capsys, *call(world))
    cells = {(row["slots"], row["candidates"], row["paths"]): row["engines"] for row in report["cells"]}
    assert cells.keys() == {*TABLE_12, *TABLE_13} and len(cells) == 16
    compiled = report["settings"]["left_out"] is None
    for engines in cells.values():
        assert engines.keys() == {OURS, *PEERS.values(), *(PEERS if compiled else (PYTHON,))}
        assert all(0 < one["median_us"] <= one["p99_us"] for one in engines.values())
    assert report["settings"]["lattices"] == 3 and {"cpu", "load", "pynini"} <= report["machine"].keys()


def test_tables_say_what_was_made_up_and_left_out(world, capsys, no_compiler, tmp_path):
    result = cli.call(capsys, *call(world, "--json", tmp_path / "s.json"))
    assert result.status == 0, result.err
    assert "C++ OpenFst left out: no g++ on the path; install g++" in result.out and "C++ phi" not in result.out
    assert "rows of the dump, joined" in result.out and f"the last {16 - dumps.K} of 16 are drawn from the model" in result.out
    assert "p = 16" in result.out and "16 x 16" in result.out
    assert json.loads((tmp_path / "s.json").read_text())["settings"]["candidates_drawn"] == 16 - dumps.K


def test_a_wrong_answer_is_not_timed(world, capsys, monkeypatch, no_compiler):
    monkeypatch.setattr(bench_search, "strings_of_fst", lambda best: [(0.0, (1,))])
    assert "pywrapfst, epsilon and ours disagree on lattice 0" in cli.refusal(capsys, *call(world))


def test_model_of_another_vocabulary(world, capsys, tmp_path):
    from rescore.lm.build import build

    build([np.array([1, 2, 3], np.int32)], order=2, vocab_size=dumps.V + 1, eot=0).save(tmp_path / "other.ngram")
    assert f"the model has {dumps.V + 1} tokens" in cli.refusal(capsys, *call(world, "--lm", tmp_path / "other.ngram"))


def test_engines_share_one_model(world, tmp_path):
    engines = Engines.of_model(NGram.open(world / "lm.ngram"), 0.5, tmp_path, None)
    assert engines.file.exists() and engines.fst.num_states() > 0
