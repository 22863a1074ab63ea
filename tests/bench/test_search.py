"""`rescore bench search`: lattices of any size, agreement of engines, the report."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from support import cli, dumps, headless_dumps

from rescore import _core
from rescore.decode.bench import equality as bench_equality
from rescore.decode.bench import search as bench_search
from rescore.decode.bench.clock import figures, least_times, least_wall_times
from rescore.decode.bench.lattices import lattices_of, lattices_of_text, widened
from rescore.decode.bench.openfst import python_search, search
from rescore.decode.bench.paper_latency import TABLES
from rescore.decode.bench.search import (
    ALL,
    ANCHOR,
    CELLS,
    COLD_HEADLINE,
    COLD_OPEN,
    COLD_TREES,
    EXACT,
    HEADLINE,
    OF_TABLES,
    OPEN,
    OURS,
    PROGRAM,
    SAMPLES,
    SWEEPS,
    TREES,
    Disagreement,
    Engines,
    check_equal,
    compared,
)
from rescore.decode.cli.actions import bench_search as actions
from rescore.lattice.dump import Dump
from rescore.lm.build import build
from rescore.lm.ngram import NGram

COLD = (COLD_HEADLINE, COLD_TREES, COLD_OPEN)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    cli.make_model(folder / "lm.ngram", cli.make_dump(folder / "dump"))
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "search", "--dump"),
        ("bench", "search", "--headline", "--every-lattice", "--dump"),
        ("bench", "batch", "--dump"),
        ("bench", "decode", "--replay"),
        ("oracle",),
    ],
)
def test_a_dump_without_heads_is_refused_by_what_needs_its_lattices(command, tmp_path, capsys):
    cli.make_model(tmp_path / "lm.ngram", headless_dumps.write(tmp_path / "dump"))
    lm = () if command == ("oracle",) else ("--lm", tmp_path / "lm.ngram")
    error = cli.refusal(capsys, *command, tmp_path / "dump", *lm)
    assert f"{tmp_path / 'dump'}: expected a dump of a model with heads" in error and "h = 1" in error


def lattices(world, **changes):
    dump, model = Dump.open(world / "dump"), NGram.open(world / "lm.ngram")
    return (
        dump,
        model,
        lattices_of(dump, model, **{"count": 6, "slots": 2 * dumps.H - 3, "width": dumps.K + 2, "seed": 1, **changes}),
    )


def test_joined_rows_follow_each_other(world):
    """The slots of a row, then those of the row T later."""
    dump, model, found = lattices(world)
    own = dumps.H - 1
    assert (found.joined(own), found.joined(own + 1)) == (1, 2) and found.sausage.ids.shape == (
        6,
        2 * own - 1,
        dumps.K + 2,
    )
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
    assert (found.joined(2), found.drawn, found.sausage.ids.shape) == (1, 0, (6, 2, 3))
    assert all((every == ids).all(axis=(1, 2)).any() for ids in found.sausage.ids)
    assert found.cut(1, 2).ids.tolist() == found.sausage.ids[:, :1, :2].tolist()


def test_drawn_candidates(world):
    """Drawn candidates follow the row's own, are distinct, with increasing costs, reproducible by seed, and more often
    those that the model expects.
    """
    _, model, found = lattices(world)
    sausage = found.sausage
    assert (
        found.drawn == 2
        and [found.drawn_of(dumps.K + more) for more in (-1, 0, 1, 2)] == [0, 0, 1, 2]
        and (np.diff(sausage.cost, axis=2) >= 0).all()
    )
    assert all(len(set(slot)) == dumps.K + 2 for slot in sausage.ids.reshape(-1, dumps.K + 2).tolist())
    assert (
        lattices(world)[2].sausage.ids.tolist()
        == sausage.ids.tolist()
        != lattices(world, seed=2)[2].sausage.ids.tolist()
    )
    narrow = found.cut(4, 1)[np.zeros(500, np.int64)]
    many = widened(narrow, np.repeat(found.histories[:1], 500, axis=0), model, 1, 3)
    history = found.histories[0]
    p = np.exp(-model.distribution(model.start(history[history >= 0])).astype(np.float64))
    for slot in range(4):
        own = p.copy()
        own[narrow.ids[0, slot, 0]] = 0
        shares = np.bincount(many.ids[:, slot, 1], minlength=len(p)) / 500
        np.testing.assert_allclose(shares, own / own.sum(), atol=5 * 0.5 / np.sqrt(500))


def test_lattices_around_a_text():
    """The true token is a candidate, most often the first; the others are distinct tokens of the text; costs depend on
    the rank only.
    """
    draw = np.random.default_rng(4)
    tokens = draw.choice(40, 3000, p=np.arange(1, 41) / 820).astype(np.int32)
    model = build([tokens[:200]], order=3, vocab_size=40, end_of_text=0)
    found = lattices_of_text(tokens, model, count=300, slots=3, width=5, seed=1)
    windows = {tuple(tokens[i : i + 5].tolist()) for i in range(len(tokens) - 4)}
    ranks = []
    for ids, history in zip(found.sausage.ids, found.histories.tolist()):
        assert all(len(set(slot)) == 5 for slot in ids.tolist())
        strings = {
            string: [slot.index(token) for slot, token in zip(ids.tolist(), string)]
            for string in itertools.product(*ids.tolist())
            if (*history, *string) in windows
        }
        assert strings
        if len(strings) == 1:
            ranks += next(iter(strings.values()))
    assert 0.3 < np.mean(np.array(ranks) == 0) < 0.5 and max(ranks) == 4
    np.testing.assert_allclose(np.exp(-found.sausage.cost[0, 0]), 0.4 * 0.6 ** np.arange(5), rtol=1e-5)
    assert (found.drawn_of(3), found.joined(3)) == (3, 1)
    assert lattices_of_text(tokens, model, count=2, slots=1, width=1, seed=0).sausage.ids.shape == (2, 1, 1)
    assert lattices_of_text(tokens, model, count=2, slots=1, width=40, seed=0).sausage.ids.shape == (2, 1, 40)
    with pytest.raises(ValueError, match="expected a text of at least 6 tokens, 41 of them distinct, got 3000 and 40"):
        lattices_of_text(tokens, model, count=2, slots=3, width=41, seed=0)


def test_refused_sizes(world):
    with pytest.raises(
        ValueError,
        match=(
            f"expected a sequence of more than {99 * (dumps.H - 1)} tokens for lattices of {100 * (dumps.H - 1)} "
            "slots, got none"
        ),
    ):
        lattices(world, slots=100 * (dumps.H - 1))
    with pytest.raises(ValueError, match=f"more candidates of {dumps.V} tokens, got {dumps.V}"):
        lattices(world, width=dumps.V + dumps.K)


def test_figures_by_hand():
    found = compared({OURS: np.array([1.0, 2.0, 3.0]), ANCHOR: np.array([10.0, 30.0, 20.0])})
    assert found[ANCHOR] == pytest.approx(
        {"median_us": 20, "p99_us": 29.8, "mean_us": 20, "times_ours": 10, "times_ours_p99": 29.8 / 2.98}
    )
    assert found[OURS] == figures(np.array([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("clock", [least_times, least_wall_times])
def test_the_first_round_does_not_count(clock):
    calls: list[int] = []
    assert (clock([lambda: calls.append(1)] * 2, 3) >= 0).all() and len(calls) == 8


def test_engines_that_disagree():
    with pytest.raises(Disagreement, match="x and ours disagree on lattice 1: string 0: cost 1.0 against 2.0"):
        check_equal("x", [[(1.0, (1,))]] * 2, [[(1.0, (1,))], [(2.0, (1,))]])
    with pytest.raises(Disagreement, match="x: 1 answers to 2 lattices"):
        check_equal("x", [[], []], [[]])


def call(world, *more):
    return [
        "bench",
        "search",
        "--dump",
        world / "dump",
        "--lm",
        world / "lm.ngram",
        "--lattices",
        3,
        "--rounds",
        1,
        "--cold",
        1,
        *more,
    ]


def test_what_comes_before_each_call():
    order = []
    least_times(
        [lambda: order.append("first"), lambda: order.append("second")], 2, before=lambda: order.append("before")
    )
    assert order == ["first", "second"] + 2 * ["before", "first", "before", "second"]


@pytest.fixture
def compiled(monkeypatch, program):
    """The C++ program compiled once for all tests."""
    for module in (actions, bench_equality):
        monkeypatch.setattr(module, "compile_search", lambda path, options: program)


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setattr(search.shutil, "which", lambda name: None)


def groups(report):
    return {
        (row["group"], row["run"]): [
            other for other in report["results"] if (other["group"], other["run"]) == (row["group"], row["run"])
        ]
        for row in report["results"]
    }


def test_report(world, capsys, compiled, tmp_path):
    report = cli.figures(capsys, *call(world, "--markdown", tmp_path / "s.md"))
    found = groups(report)
    assert report["bench"] == "search" and list(found) == [
        (name, 1) for name in (*COLD, HEADLINE, TREES, OPEN, SAMPLES, TABLES)
    ]
    cells = {
        (row["case"]["slots"], row["case"]["candidates"], row["case"]["paths"]): row["engines"]
        for row in found[TABLES, 1]
    }
    assert cells.keys() == set(CELLS) and len(cells) == 16
    assert all(tuple(engines) == OF_TABLES for engines in cells.values()) and set(
        found[HEADLINE, 1][0]["engines"]
    ) == set(ALL)
    assert [row["case"]["nodes"] for row in found[TREES, 1]] == [16, 64, 128]
    assert [row["case"]["nodes"] for name in (COLD_OPEN, OPEN) for row in found[name, 1]] == [16, 64] * 2
    assert tuple(found[COLD_HEADLINE, 1][0]["engines"]) == EXACT
    for row in report["results"]:
        assert row["case"]["lattices"] == 3 and row["case"]["candidates_drawn"] == max(
            0, row["case"]["candidates"] - dumps.K
        )
        for name, one in row["engines"].items():
            assert 0 < one["median_us"] <= one["p99_us"] and ("times_ours" in one) == (name in bench_search.PEERS)
    assert {"cpu", "load", "pynini", "core", "g++"} <= report["machine"].keys()
    assert report["machine"]["core"] == _core.processor
    assert report["settings"]["left_out"] is None and len(report["checked"]) == 1
    text = (tmp_path / "s.md").read_text()
    assert (
        text.startswith("## rescore bench search\n\n- ")
        and "\n| engine | median | p99 | x | x p99 |\n|---|---:|---:|---:|---:|\n| ours | " in text
        and "\n| 16 x 16 | " in text
    )


def test_runs_and_sweeps(world, capsys, compiled):
    """Every repetition has its own rows; their ratios are printed side by side."""
    result = cli.call(capsys, *call(world, "--headline", "--repeat", 2, "--without", "pywrapfst"))
    assert (
        result.status == 0
        and f"{HEADLINE}: x in 2 runs" in result.out
        and "left out: pywrapfst: --without" in result.out
        and "table 12" not in result.out
    )
    report = cli.figures(
        capsys, *call(world, "--headline", "--sweep", "--cold", 0, "--without", "pywrapfst", "--without", "openfst")
    )
    found = groups(report)
    assert [name for name, _ in found] == [HEADLINE, TREES, OPEN, SAMPLES, *SWEEPS]
    for name, key in zip(SWEEPS, ("paths", "slots", "candidates", "nodes")):
        sizes = [row["case"][key] for row in found[name, 1]]
        assert (
            sizes == sorted(set(sizes))
            and len(sizes) >= 4
            and all(set(row["engines"]) <= set(EXACT) for row in found[name, 1])
        )


def test_tables_say_what_was_made_up_and_left_out(world, capsys, no_compiler, tmp_path):
    result = cli.call(capsys, *call(world, "--json", tmp_path / "s.json"))
    assert result.status == 0, result.err
    assert "left out: C++ OpenFst: no g++ on the path; install g++" in result.out and "C++ phi" not in result.out
    assert (
        "rows of the dump" in result.out and f"the last {16 - dumps.K} of 16 are sampled from the model" in result.out
    )
    assert "p = 16" in result.out and "16 x 16" in result.out
    assert all(
        row["engines"].keys().isdisjoint(PROGRAM) for row in json.loads((tmp_path / "s.json").read_text())["results"]
    )


def test_without_pynini(world, capsys, monkeypatch, no_compiler):
    monkeypatch.setattr(actions, "find_spec", lambda name: None)
    result = cli.call(capsys, *call(world, "--headline"))
    assert (
        result.status == 0
        and "pywrapfst: not installed (pip install 'pynini" in result.out
        and "ours, epsilon" in result.out
    )


def test_a_wrong_answer_is_not_timed(world, capsys, monkeypatch, no_compiler):
    monkeypatch.setattr(python_search, "strings_of_fst", lambda best: [(0.0, (1,))])
    assert "pywrapfst, epsilon and ours disagree on lattice 0" in cli.refusal(capsys, *call(world))


def test_every_lattice(world, capsys, compiled, monkeypatch):
    """All lattices are compared and counted; a wrong cost is reported with task and p."""
    words = call(world, "--headline", "--every-lattice", "--without", "pywrapfst")
    rows = sum(block.rows for block in Dump.open(world / "dump").blocks())
    assert (
        f"on all {rows:,} lattices of {world / 'dump'}, p = 1, 2, 4, 8, 16" in cli.figures(capsys, *words)["checked"][0]
    )
    right = bench_equality.run_search

    def wrong(*args, paths, **options):
        answers = right(*args, paths=paths, **options)
        if paths == 4:
            cost, tokens = answers.strings[2][0]
            answers.strings[2][0] = (cost - 0.001, tokens)
        return answers

    monkeypatch.setattr(bench_equality, "run_search", wrong)
    assert (
        f"{world / 'dump'}: task first, p = 4, lattices counted from position 0: "
        f"{ANCHOR} and ours disagree on lattice 2: string 0" in cli.refusal(capsys, *words)
    )


def test_a_text_instead_of_a_dump(world, capsys, no_compiler, tmp_path):
    np.save(tmp_path / "t.npy", np.random.default_rng(5).integers(1, dumps.V, 500).astype(np.uint16))
    words = [
        "bench",
        "search",
        "--text",
        tmp_path / "t.npy",
        "--lm",
        world / "lm.ngram",
        "--lattices",
        2,
        "--rounds",
        1,
        "--headline",
        "--cold",
        0,
        "--without",
        "pywrapfst",
    ]
    result = cli.call(capsys, *words)
    assert result.status == 0 and f"{HEADLINE}: 2 lattices; sampled around positions of the text" in result.out
    assert "--every-lattice needs --dump" in cli.refusal(capsys, *words, "--every-lattice", status=2)


def test_every_lattice_needs_the_peer(world, capsys):
    assert "--every-lattice: expected C++ OpenFst to compare with, got none" in cli.refusal(
        capsys, *call(world, "--every-lattice", "--without", "openfst")
    )


def test_peer_settings(world, capsys, compiled):
    report = cli.figures(capsys, *call(world, "--headline", "--peer-settings", "--without", "pywrapfst"))
    rows = groups(report)[actions.SETTINGS, 1]
    assert [row["case"]["setting"] for row in rows] == list(search.SETTINGS) and rows[0]["engines"][ANCHOR][
        "times_as_timed"
    ] == 1


def test_model_of_another_vocabulary(world, capsys, tmp_path):
    build([np.array([1, 2, 3], np.int32)], order=2, vocab_size=dumps.V + 1, end_of_text=0).save(
        tmp_path / "other.ngram"
    )
    assert f"the model has {dumps.V + 1} tokens" in cli.refusal(capsys, *call(world, "--lm", tmp_path / "other.ngram"))


def test_engines_share_one_model(world, tmp_path):
    engines = Engines.of_model(NGram.open(world / "lm.ngram"), 0.5, tmp_path, None)
    assert engines.file.exists() and engines.fst.num_states() > 0
