"""p-best strings against OpenFst: a PhiMatcher program.

What counts as the same answer is said by `disagreement` in tools/bench/openfst.py: costs to 1e-4, strings but
for ties.
"""

from pathlib import Path

import numpy as np
import pywrapfst
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import models, padded, sausages
from support.refusals import refuses
from support.tools import load_tool

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.dump import Dump
from rescore.lattice.sausage import Sausage
from rescore.lm.model.fst import to_fst
from rescore.lm.model.ngram import NGram

openfst = load_tool("bench/openfst")
disagreement, run_search, strings_of, write_model = (
    openfst.disagreement,
    openfst.run_search,
    openfst.strings_of,
    openfst.write_model,
)

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
    write_model(folder / "model.fst", model, alpha=alpha)
    rescorer = Rescorer(model, alpha=alpha)
    drafts = rescorer.paths(sausage, histories, paths)
    theirs = run_search(program, folder / "model.fst", sausage, rescorer.states(histories)[0], paths=paths)
    assert len(theirs.strings) == sausage.batch_size
    for lattice, answer in enumerate(theirs.strings):
        assert not disagreement(strings_of(drafts, lattice), answer)


@st.composite
def problems(draw, lattices: int = 4):
    model = draw(models(VOCAB))
    batch = draw(st.lists(sausages(VOCAB).filter(bool), min_size=1, max_size=lattices))
    histories = draw(
        st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=3), min_size=len(batch), max_size=len(batch))
    )
    rows = np.array([[-1] * (3 - len(history)) + history for history in histories], np.int32)
    ids, cost = padded(batch)
    return (
        model.ngram(),
        draw(st.sampled_from([0.0, 0.25, 1.0, 1.5])),
        Sausage(ids=ids, cost=cost),
        rows,
        draw(st.sampled_from([1, 3, PATHS])),
    )


@settings(max_examples=100)
@given(problem=problems(lattices=8))
def test_failure_semantics_on_random_models(problem, program, tmp_path_factory):
    assert_failure_semantics(*problem, program, tmp_path_factory.getbasetemp())


def test_failure_semantics_on_the_demo(demo, program, tmp_path):
    model, sausage, histories = demo_lattices(demo, DEMO_LATTICES)
    assert_failure_semantics(model, 0.7, sausage, histories, PATHS, program, tmp_path)


@settings(max_examples=50)
@given(model=models(VOCAB))
def test_const_file_is_what_openfst_would_write(model, tmp_path_factory):
    """Equals, arc by arc, the automaton that pywrapfst builds with sorted arcs; alpha scales its costs."""
    path, own = tmp_path_factory.getbasetemp() / "const.fst", model.ngram()
    write_model(path, own, alpha=1.0)
    built = to_fst(own)
    built.arcsort("ilabel")
    read = pywrapfst.Fst.read(str(path))
    assert read.fst_type() == "const" and read.verify() and pywrapfst.equal(read, built)
    write_model(path, own, alpha=0.3)
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
    states = np.array([2**20], np.uint32)
    refuses(RuntimeError, lambda: run_search(program, tmp_path / "model.fst", sausage, states, paths=1), "state")
    refuses(RuntimeError, lambda: run_search(program, tmp_path / "model.fst", sausage, states, paths=0), "1")
