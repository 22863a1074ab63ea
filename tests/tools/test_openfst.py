"""p-best strings against OpenFst, a PhiMatcher program; tools/bench/search.py times nothing whose answers differ.

What counts as the same answer is said by `disagreement` in tools/bench/openfst.py: costs to 1e-4, strings but
for ties.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import dumps
from support.oracle import models, padded, padded_histories, sausages
from support.refusals import assert_named, refuses
from support.tools import load_tool
from support.word_lattices import graph_of, large_lattice, large_model

from rescore import _core
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lm.model.fst import to_fst
from rescore.lm.model.ngram import NGram

openfst, search = load_tool("bench/openfst"), load_tool("bench/search")
disagreement = openfst.disagreement

VOCAB = 7
PATHS = 16
DEMO_LATTICES = 200


def demo_lattices(demo: Path, lattices: int) -> tuple[NGram, Sausage, np.ndarray]:
    """The shipped model and lattices spread over the tasks of the shipped dump of sampled continuations."""
    model = NGram.open(demo / "demo.ngram")
    blocks = list(Dump.open(demo / "sampled").blocks())
    each = -(-lattices // len(blocks))
    rows = [np.linspace(0, block.rows - 1, each).astype(int) for block in blocks]
    parts = [block.sausages(r) for block, r in zip(blocks, rows)]
    sausage = Sausage(ids=np.concatenate([p.ids for p in parts]), cost=np.concatenate([p.cost for p in parts]))
    histories = np.concatenate([block.histories(r, model.order - 1) for block, r in zip(blocks, rows)])
    return model, sausage, histories


def assert_failure_semantics(
    model: NGram, alpha: float, sausage: Sausage, histories: np.ndarray, paths: int, program: Path, folder: Path
) -> None:
    openfst.write_model(folder / "model.fst", model, alpha=alpha)
    rescorer = Rescorer(model, alpha=alpha)
    drafts = rescorer.paths(sausage, histories, paths)
    theirs = openfst.run_search(
        program, folder / "model.fst", openfst.word_lattices(sausage), rescorer.states(histories)[0], paths=paths
    )
    assert len(theirs.strings) == sausage.batch_size
    for lattice, answer in enumerate(theirs.strings):
        assert not disagreement(openfst.strings_of(drafts, lattice), answer)


@st.composite
def problems(draw, lattices: int = 4):
    model = draw(models(VOCAB))
    batch = draw(st.lists(sausages(VOCAB).filter(bool), min_size=1, max_size=lattices))
    token = st.integers(0, VOCAB - 1)
    histories = draw(st.lists(st.lists(token, max_size=3), min_size=len(batch), max_size=len(batch)))
    alpha, paths = draw(st.sampled_from([0.0, 0.25, 1.0, 1.5])), draw(st.sampled_from([1, 3, PATHS]))
    ids, cost = padded(batch)
    return model.ngram(), alpha, Sausage(ids=ids, cost=cost), padded_histories(histories), paths


@settings(max_examples=100)
@given(problem=problems(lattices=8))
def test_failure_semantics_on_random_models(problem, program, tmp_path_factory):
    assert_failure_semantics(*problem, program, tmp_path_factory.getbasetemp())


def test_failure_semantics_on_the_demo(demo, program, tmp_path):
    model, sausage, histories = demo_lattices(demo, DEMO_LATTICES)
    assert_failure_semantics(model, 0.7, sausage, histories, PATHS, program, tmp_path)


@pytest.mark.parametrize("arcs", [20, 200, 2000])
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_word_lattices_of_any_shape(arcs, alpha, program, tmp_path):
    rng = np.random.default_rng(arcs)
    model = large_model(rng, 100).ngram()
    lattices = [large_lattice(rng, arcs, model.vocab_size) for _ in range(6)]
    starts = model.core.start_batch(rng.integers(0, model.vocab_size, (len(lattices), 2)).astype(np.int32))
    graphs = [graph_of(one, [None]) for one in lattices]
    found = _core.best_strings([model.core], graphs, starts[:, None], np.array([alpha]), paths=PATHS)
    openfst.write_model(tmp_path / "model.fst", model, alpha=alpha)
    theirs = openfst.run_search(program, tmp_path / "model.fst", lattices, starts, paths=PATHS)
    for one, (cost, first, of), answer in zip(lattices, found, theirs.strings):
        strings = [tuple(one.tokens[of[a : b - 1]].tolist()) for a, b in zip(first[:-1], first[1:])]
        assert not disagreement(list(zip(cost.tolist(), strings)), answer)


@settings(max_examples=50)
@given(model=models(VOCAB))
def test_const_file_is_what_openfst_would_write(model, tmp_path_factory):
    """Equals, arc by arc, the automaton that pywrapfst builds with sorted arcs; alpha scales its costs."""
    import pywrapfst

    path, own = tmp_path_factory.getbasetemp() / "const.fst", model.ngram()
    openfst.write_model(path, own, alpha=1.0)
    built = to_fst(own)
    built.arcsort("ilabel")
    read = pywrapfst.Fst.read(str(path))
    assert read.fst_type() == "const" and read.verify() and pywrapfst.equal(read, built)
    openfst.write_model(path, own, alpha=0.3)
    weights = [
        [np.float32(float(arc.weight)) for state in fst.states() for arc in fst.arcs(state)]
        for fst in (pywrapfst.Fst.read(str(path)), built)
    ]
    assert weights[0] == [weight * np.float32(0.3) for weight in weights[1]]


def test_disagreement():
    answer = [(1.0, (1, 2)), (2.0, (1, 3)), (2.0, (2, 3))]
    assert disagreement(answer, answer) == ""
    assert disagreement(answer, [*answer[:2], (2.0, (5, 5))]) == ""  # tied with the last
    assert disagreement(answer, [(1.0, (1, 2)), *answer[:0:-1]]) == ""
    assert disagreement(answer, answer[:2]) == "3 strings against 2"
    assert disagreement(answer, [*answer[:2], (2.1, (2, 3))]) == "string 2: cost 2.0 against 2.1"
    assert disagreement(answer, [(1.0, (4, 4)), *answer[1:]]).startswith("string (")
    assert disagreement(answer, [*answer[:2], answer[1]]) == "a string occurs twice"


def test_unavailable_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(openfst, "HEADER", tmp_path / "fstlib.h")
    monkeypatch.setattr(openfst.shutil, "which", lambda name: "/usr/bin/g++")
    refuses(openfst.OpenFstUnavailable, lambda: openfst.compile_search(tmp_path / "program"), "OpenFst")
    monkeypatch.setattr(openfst.shutil, "which", lambda name: None)
    refuses(openfst.OpenFstUnavailable, lambda: openfst.compile_search(tmp_path / "program"), "install")


def test_program_names_what_it_refuses(demo, program, tmp_path):
    model, sausage, _ = demo_lattices(demo, 1)
    to_fst(model).write(str(tmp_path / "model.fst"))
    given = (program, tmp_path / "model.fst", openfst.word_lattices(sausage), np.array([2**20], np.uint32))
    refuses(RuntimeError, lambda: openfst.run_search(*given, paths=1), "state")
    refuses(RuntimeError, lambda: openfst.run_search(*given, paths=0), "1")


@pytest.fixture
def compiled(monkeypatch, program):
    """The C++ program compiled once for all tests."""
    monkeypatch.setattr(search, "compile_search", lambda path, options: program)


def run(world, monkeypatch, *more):
    given = (world / "dump", world / "lm.ngram", "--slots", dumps.H, "--candidates", dumps.K, "--lattices", 6)
    words = [*given, "--rounds", 1, "--batch", 2, "--threads", 1, *more]
    monkeypatch.setattr(sys, "argv", ["search.py", *map(str, words)])
    search.main()


def test_batches_hold_no_more_than_all_lattices(world, monkeypatch, compiled, capsys):
    run(world, monkeypatch, "--batch", 1, 64, 100)
    sizes = [line.split(",")[0] for line in capsys.readouterr().out.splitlines() if line.startswith("batch")]
    assert len(sizes) == 2 and sizes[0] == "batch 1" and 1 < int(sizes[1].split()[1]) < 64


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
