import gzip
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import opengrm
from support.models import assert_same_model, assert_same_tables
from support.oracle_lm import random_tables
from support.refusals import refused, refuses

from rescore.lm.model import example
from rescore.lm.model.formats import load, save
from rescore.lm.model.fst import from_fst, to_fst
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")


def test_opengrm_models_are_read(shared):
    folder = shared / "reference" / "opengrm"
    ids = opengrm.read_symbols(folder / "earnest.sym")
    symbols = pywrapfst.SymbolTable.read_text(str(folder / "earnest.sym"))  # outlives the compiler that points to it
    compiler = pywrapfst.Compiler(isymbols=symbols, osymbols=symbols)
    with gzip.open(folder / "earnest-relative_entropy.pru.txt.gz", "rt") as lines:
        for line in lines:
            compiler.write(line)
    # OpenGrm's label of a word is its id + 1 here: word 1 is id 0, and <s> and </s> come after all words
    words = len(ids) - 2
    model = from_fst(compiler.compile(), vocab_size=words + 2, bos=words, eos=words + 1, unseen_cost=1000.0)
    reference = opengrm.read_model(folder / "earnest-relative_entropy.pru.txt.gz", ids)
    renumber = np.arange(len(ids)) - 1
    renumber[[opengrm.BOS, ids["</s>"]]] = words, words + 1
    moved = Tables.from_rows(
        [renumber[reference.spell(n)].astype(np.uint32) for n in range(1, reference.order + 1)],
        reference.cost,
        list(map(np.nan_to_num, reference.gram_backoffs())),
        vocab_size=words + 2,
    )
    assert_same_tables(model.to_tables(), moved)


def test_wrong_automata_are_named():
    model = NGram.from_tables(random_tables(1, 2))
    refuses(ValueError, lambda: to_fst(model, failure_label=9), "failure_label", "0", "9")
    refuses(ValueError, lambda: to_fst(model, start=99), "start")
    refuses(ValueError, lambda: from_fst(to_fst(model), vocab_size=5), "0", "1..5", "6")
    one = pywrapfst.Weight.one("tropical")

    def changed(change):
        fst = to_fst(model)
        change(fst)
        return fst

    for change, message in [
        (lambda fst: fst.add_arc(1, pywrapfst.Arc(1, 2, one, 0)), ["1:2"]),
        (lambda fst: fst.add_arc(1, pywrapfst.Arc(0, 0, one, 0)), ["state 1", "two"]),
        (lambda fst: fst.add_state(), ["2"]),
        (lambda fst: fst.add_arc(fst.add_state(), pywrapfst.Arc(0, 0, one, 0)), ["context"]),
        (lambda fst: fst.set_final(1, 2.0), ["state 1", "2.0"]),
        (lambda fst: fst.set_final(1, "infinity"), ["state 1", "0", "inf"]),
        (lambda fst: fst.add_arc(0, pywrapfst.Arc(1, 1, one, 1)), ["state 0", "two", "1"]),
    ]:
        with refused(ValueError, *message):
            from_fst(changed(change), vocab_size=9)


WEIGHTS = {math.inf: "inf", 3.4028234663852886e38: "3.40", 2.4e6: "2400000", -1.0: "-1.0"}


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("state, number", [(0, 2), (1, 1), (1, 0)], ids=["root", "state", "failure"])
@pytest.mark.parametrize("kind", ["vector", "const"])
def test_weights_that_are_no_costs_are_refused(tmp_path, weight, state, number, kind):
    fst = to_fst(example.model())
    _set(fst, state, number, weight=pywrapfst.Weight("tropical", weight))
    pywrapfst.convert(fst, kind).write(str(tmp_path / "model.fst"))
    if weight == -1 and (state, number) == (1, 0):  # a backoff weight above 1
        model = load(tmp_path / "model.fst")
        save(model, tmp_path / "model.arpa")
        return assert_same_model(load(tmp_path / "model.arpa"), model)
    refuses(ValueError, lambda: load(tmp_path / "model.fst"), "model.fst", state, number, WEIGHTS[weight])


@pytest.mark.parametrize("weight", [-0.0, 1e-45, 2.3e6])
def test_other_weights_are_kept_in_every_format(tmp_path, weight):
    fst = to_fst(example.model())
    _set(fst, 0, 2, weight=pywrapfst.Weight("tropical", weight))
    _set(fst, 1, 0, weight=pywrapfst.Weight("tropical", weight))
    fst.write(str(tmp_path / "model.fst"))
    model = load(tmp_path / "model.fst")
    assert model.step(0, 2)[1] == np.float32(weight)
    for suffix in (".ngram", ".arpa", ".fst"):
        save(model, tmp_path / f"again{suffix}")
        assert_same_model(load(tmp_path / f"again{suffix}"), model)


@settings(max_examples=200)
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.sampled_from([0, 1000]))
def test_changed_automata_are_scored_as_openfst_has_them_or_refused(draw, order, failure_label):
    """Arcs and failure arcs that lead elsewhere, have another label or weight, are doubled or missing; new states."""
    model = NGram.from_tables(random_tables(draw.randrange(10**6), order, vocab_size=4, tokens=30))
    fst = to_fst(model, failure_label=failure_label)
    for _ in range(draw.randint(1, 3)):
        _perturb(fst, draw, failure_label)
    try:
        back = from_fst(fst, vocab_size=4, failure_label=failure_label)
    except ValueError as error:
        assert re.search(r"state|unigrams|arc_cost", str(error))
        return
    for _ in range(20):
        text = [draw.randrange(4) for _ in range(8)]
        np.testing.assert_allclose(back.score(text), _walked(fst, text, failure_label), rtol=1e-5, atol=1e-5)


def _perturb(fst, draw, failure_label):
    state = draw.randrange(fst.num_states())
    arcs = list(fst.arcs(state))
    if not arcs:
        return
    at, other = draw.randrange(len(arcs)), draw.randrange(fst.num_states())
    change = draw.randrange(6)
    if change == 0:
        _set(fst, state, at, next=other)
    elif change == 1:
        _set(fst, state, at, label=draw.choice([failure_label, 1, 2, 3, 4]))
    elif change == 2:
        _set(fst, state, at, weight=pywrapfst.Weight("tropical", draw.uniform(0, 3)))
    elif change == 3:
        fst.add_arc(state, pywrapfst.Arc(draw.choice([failure_label, 1, 2, 3, 4]), 0, "1", other))
        _set(fst, state, len(arcs))
    elif change == 4:
        fst.delete_arcs(state)
        for number, arc in enumerate(arcs):
            if number != at:
                fst.add_arc(state, arc)
    else:
        new = fst.add_state()
        fst.set_final(new)
        fst.add_arc(new, pywrapfst.Arc(failure_label, failure_label, "0.5", other))
        if draw.random() < 0.5:
            _set(fst, state, at, next=new)


def _set(fst, state, at, *, label=None, weight=None, next=None):
    """Changes an arc and makes its output label its input label."""
    arcs = list(fst.arcs(state))
    fst.delete_arcs(state)
    for number, arc in enumerate(arcs):
        if number == at:
            label = arc.ilabel if label is None else label
            next = arc.nextstate if next is None else next
            arc = pywrapfst.Arc(label, label, weight or arc.weight, next)
        fst.add_arc(state, arc)


def _walked(fst, text, failure_label):
    """The cost of each token: a failure arc is taken where no arc has the label."""
    state = next(s for s in fst.states() if all(arc.ilabel != failure_label for arc in fst.arcs(s)))
    costs = []
    for token in text:
        cost = 0.0
        while not (found := [arc for arc in fst.arcs(state) if arc.ilabel == token + 1]):
            (failure,) = (arc for arc in fst.arcs(state) if arc.ilabel == failure_label)
            cost, state = cost + float(failure.weight), failure.nextstate
        (arc,) = found
        costs.append(cost + float(arc.weight))
        state = arc.nextstate
    return costs
