"""OpenFst's automata and binary files, written and read without OpenFst, against OpenFst."""

import gzip
import math
import random
import re
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import opengrm
from support.fuzz import damage, times
from support.models import assert_same_model, assert_same_tables, use
from support.oracle_lm import random_tables
from support.refusals import refused, refuses

from rescore.lm.model import example
from rescore.lm.model import fst as fst_module
from rescore.lm.model.formats import load, save
from rescore.lm.model.fst import const_parts, from_fst, load_fst, save_fst, to_fst, vector_parts
from rescore.lm.model.fst_read import read
from rescore.lm.model.gram_rows import tables_of_rows
from rescore.lm.model.ngram import NGram

pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")

COUNTS = 4 + 4 + 6 + 4 + 8 + 4 + 4 + 8 + 8  # bytes before the number of states of a vector FST of standard arcs


def small_model(seed, order=3):
    return NGram.from_tables(random_tables(seed, order, vocab_size=6, tokens=50))


def added_arc_by_arc(model: NGram, failure_label: int = 0, start: int = 0):
    """The slow twin: the automaton added to a VectorFst of OpenFst, arc by arc."""
    arrays, fst = model.arrays, pywrapfst.VectorFst("standard")
    fst.add_states(len(arrays.backoff_state))

    def add(state: int, label: int, cost: float, after: int) -> None:
        fst.add_arc(state, pywrapfst.Arc(label, label, pywrapfst.Weight("tropical", float(cost)), int(after)))

    for state in range(len(arrays.backoff_state)):
        if state:
            add(state, failure_label, arrays.backoff_cost[state], arrays.backoff_state[state])
        for arc in range(int(arrays.arc_begin[state]), int(arrays.arc_begin[state + 1])):
            add(state, int(arrays.arc_token[arc]) + 1, arrays.arc_cost[arc], arrays.arc_next[arc])
        fst.set_final(state)
    fst.set_start(start)
    return fst


def written(fst):
    return np.frombuffer(fst.write_to_string(), np.uint8)


def const_bytes(model: NGram, **options) -> bytes:
    return b"".join(const_parts(model.arrays, **options))


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 4), st.sampled_from([0, 1000]), st.integers(0, 5), st.integers(1, 40))
def test_automata_are_openfsts(tmp_path_factory, seed, order, failure_label, start, block):
    """Byte by byte, whatever the blocks; of constant ones the properties that the file claims are true."""
    model, path = small_model(seed, order), tmp_path_factory.getbasetemp() / "model.fst"
    options = {"failure_label": failure_label, "start": start % model.core.num_states}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fst_module, "BLOCK", block)
        save_fst(model, path, **options)
        ours = to_fst(model, **options)
    twin = added_arc_by_arc(model, **options)
    assert path.read_bytes() == twin.write_to_string() == ours.write_to_string()
    assert isinstance(ours, pywrapfst.VectorFst)
    path.write_bytes(const_bytes(model, **options))
    const = pywrapfst.Fst.read(str(path))
    assert const.fst_type() == "const" and const.verify() and pywrapfst.equal(const, twin)
    claimed, found = (const.properties(pywrapfst.FstProperties.FST_PROPERTIES, test).value for test in (False, True))
    assert claimed and claimed & found == claimed


@settings(max_examples=50)
@given(st.randoms(use_true_random=False), st.sampled_from(["standard", "log"]), st.booleans())
def test_acceptors_are_read_as_openfst_reads_them(draw, arc_type, symbols):
    """Any acceptor, state by state and arc by arc."""
    fst, states = pywrapfst.VectorFst(arc_type), draw.randint(1, 6)
    fst.add_states(states)
    fst.set_start(draw.randrange(states))
    for state in range(states):
        if draw.random() < 0.5:
            fst.set_final(state, pywrapfst.Weight(fst.weight_type(), draw.choice([-1.5, 0, 2])))
        for _ in range(draw.randrange(4)):
            label, weight = draw.randrange(-3, 99), pywrapfst.Weight(fst.weight_type(), draw.choice([0, 0.25, np.inf]))
            fst.add_arc(state, pywrapfst.Arc(label, label, weight, draw.randrange(states)))
    if symbols:
        table = pywrapfst.SymbolTable("\N{GREEK SMALL LETTER ALPHA}")
        table.add_symbol("\N{GREEK SMALL LETTER BETA}", 2**40)
        fst.set_input_symbols(table).set_output_symbols(table)
    theirs = [
        [(arc.ilabel, arc.olabel, float(arc.weight), arc.nextstate) for arc in fst.arcs(s)] for s in range(states)
    ]
    for kind in ("vector", "const"):
        found = read(written(pywrapfst.convert(fst, kind)))
        ours = [found.arcs[a:b].tolist() for a, b in zip(found.first[:-1], found.first[1:])]
        assert (found.start, ours) == (fst.start(), theirs)
        assert found.final.tolist() == [float(fst.final(state)) for state in range(states)]


def test_other_layouts_are_read():
    """As `fstconvert --fst_type=const --fst_align` writes it: padded before the states and before the arcs; of vectors
    the number of states may be left to the end.
    """
    model = small_model(5)
    head, table, *arcs = map(bytes, const_parts(model.arrays))
    flags = head.index(b"standard") + 8 + 4
    head = head[:flags] + struct.pack("<i", 4) + head[flags + 4 :]
    file = head + bytes(-len(head) % 16) + table
    file += bytes(-len(file) % 16) + b"".join(arcs)
    found, plain = (read(np.frombuffer(data, np.uint8)) for data in (file, const_bytes(model)))
    assert all(map(np.array_equal, found, plain))
    data = written(to_fst(model))
    assert all(map(np.array_equal, read(patched(data, COUNTS, "<q", -1)), read(data)))


def test_other_fsts_are_converted_or_refused(tmp_path):
    model = NGram.from_tables(small_model(5).to_tables())
    assert_same_model(from_fst(pywrapfst.convert(to_fst(model), "compact_acceptor"), vocab_size=6), model)
    assert_same_model(from_fst(pywrapfst.arcmap(to_fst(model), map_type="to_log"), vocab_size=6), model)
    pywrapfst.convert(to_fst(model), "compact_acceptor").write(str(tmp_path / "compact.fst"))
    refuses(ValueError, lambda: load_fst(tmp_path / "compact.fst"), "compact.fst", "'compact_acceptor'", "'standard'")


def patched(data, at, format, value):
    raw = struct.pack(format, value)
    return np.concatenate([data[:at], np.frombuffer(raw, np.uint8), data[at + len(raw) :]])


def test_damage_is_named():
    data, const = written(to_fst(example.model())), np.frombuffer(const_bytes(example.model()), np.uint8)
    body = COUNTS + 16  # the states, the first of them the root with its arcs
    arc = body + 12
    for damaged, message in [
        (data[:0], ["OpenFst"]),
        (data[:20], ["byte 18", "2"]),
        (data[:-1], ["states"]),
        (data[:-4], ["state 4"]),
        (np.append(data, data[:4]), ["5", "4"]),
        (patched(data, 4, "<i", 2**31 - 1), ["2147483647"]),
        (patched(data, 26, "<i", 9), ["2", "9"]),
        (patched(data, 30, "<i", 1), ["symbol"]),
        (patched(data, COUNTS - 8, "<q", 5), ["5"]),
        (patched(data, COUNTS, "<q", 0)[: COUNTS + 16], ["automaton"]),
        (patched(data, COUNTS, "<q", 2**62), ["header", "4611686018427387904"]),
        (patched(data, COUNTS, "<q", 4), ["4"]),
        (patched(data, body + 4, "<q", 2**40 + 1), ["state 0", "1099511627777"]),
        (patched(data, arc, "<i", 7), ["0", "7:1"]),
        (patched(data, arc + 12, "<i", 5), ["0", "5"]),
        (patched(data, arc + 12, "<i", -1), ["0", "5", "-1"]),
        (patched(data, arc + 8, "<f", np.nan), ["nan", "0"]),
        (patched(data, arc + 8, "<f", -np.inf), ["0", "-inf"]),
        (patched(data, body, "<f", np.nan), ["state 0", "nan"]),
        (const[:-1], ["bytes"]),
        (np.append(const, const[:4]), ["4"]),
        (patched(const, COUNTS - 1, "<q", 2**61), ["2305843009213693952"]),
        (patched(const, COUNTS + 7, "<q", 2**61), ["2305843009213693952"]),
        (patched(const, COUNTS + 15 + 4, "<i", 1), ["state 0"]),
        (patched(const, COUNTS + 15 + 8, "<i", 2**31 - 1), ["state 1", "2147483647"]),
    ]:
        with refused(ValueError, *message):
            read(damaged)


@pytest.mark.parametrize("kind", ["vector", "const"])
def test_damage_of_any_kind_is_told(tmp_path, kind):
    path, refused = tmp_path / "damaged.fst", 0
    whole = b"".join({"vector": vector_parts, "const": const_parts}[kind](small_model(7).arrays))
    for seed in times(250):
        path.write_bytes(damage(whole, random.Random(seed)))
        try:
            use(load(path))
        except ValueError as error:
            assert str(error).startswith(f"{path}: ")
            refused += 1
    assert refused > len(times(250)) // 4


def test_long_chains_are_no_model():
    """Refused at the first context that is too long, so a file costs time in proportion to its size."""
    fst = pywrapfst.VectorFst("standard")
    fst.add_states(50)
    for state in range(50):
        fst.add_arc(state, pywrapfst.Arc(1, 1, "0", min(state + 1, 49)))
        if state:
            fst.add_arc(state, pywrapfst.Arc(0, 0, "0", state - 1))
        fst.set_final(state)
    fst.set_start(0)
    refuses(ValueError, lambda: from_fst(fst, vocab_size=1), "state 7", "6")


def test_reference_files_are_refused(shared):
    """Those that OpenFst aborted the process for, or that gave an IndexError."""
    for path, message in {
        "abort_bad_alloc": ["header", "438", "33575"],
        "abort_length_error": ["state 220", "954"],
        "indexerror": ["438", "20195"],
    }.items():
        with refused(ValueError, f"{path}.fst", *message):
            load(shared / "reference" / "hostile" / f"{path}.fst")


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
    moved = tables_of_rows(
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
    for change, message in [
        (lambda fst: fst.add_arc(1, pywrapfst.Arc(1, 2, "0", 0)), ["1:2"]),
        (lambda fst: fst.add_arc(1, pywrapfst.Arc(0, 0, "0", 0)), ["state 1", "two"]),
        (lambda fst: fst.add_state(), ["2"]),
        (lambda fst: fst.add_arc(fst.add_state(), pywrapfst.Arc(0, 0, "0", 0)), ["context"]),
        (lambda fst: fst.set_final(1, 2.0), ["state 1", "2.0"]),
        (lambda fst: fst.set_final(1, "infinity"), ["state 1", "0", "inf"]),
        (lambda fst: fst.add_arc(0, pywrapfst.Arc(1, 1, "0", 1)), ["state 0", "two", "1"]),
        (lambda fst: _set(fst, 8, 1, next=5), ["state 8", "label 2", "state 2", "5"]),
    ]:
        fst = to_fst(model)
        change(fst)
        with refused(ValueError, *message):
            from_fst(fst, vocab_size=9)


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
    for state, number in ((0, 2), (1, 0)):
        _set(fst, state, number, weight=pywrapfst.Weight("tropical", weight))
    fst.write(str(tmp_path / "model.fst"))
    model = load(tmp_path / "model.fst")
    assert model.step(0, 2)[1] == np.float32(weight)
    for suffix in (".ngram", ".arpa", ".fst"):
        save(model, tmp_path / f"again{suffix}")
        assert_same_model(load(tmp_path / f"again{suffix}"), model)


@settings(max_examples=100)
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
    label = draw.choice([failure_label, 1, 2, 3, 4])
    change = draw.randrange(6)
    if change == 0:
        _set(fst, state, at, next=other)
    elif change == 1:
        _set(fst, state, at, label=label)
    elif change == 2:
        _set(fst, state, at, weight=pywrapfst.Weight("tropical", draw.uniform(0, 3)))
    elif change == 3:
        fst.add_arc(state, pywrapfst.Arc(label, label, "1", other))
    elif change == 4:
        fst.delete_arcs(state)
        for arc in (*arcs[:at], *arcs[at + 1 :]):
            fst.add_arc(state, arc)
    else:
        new = fst.add_state()
        fst.set_final(new)
        fst.add_arc(new, pywrapfst.Arc(failure_label, failure_label, "0.5", other))
        if draw.random() < 0.5:
            _set(fst, state, at, next=new)


def _set(fst, state, at, *, label=None, weight=None, next=None):
    """Changes an arc."""
    arcs = fst.mutable_arcs(state)
    arcs.seek(at)
    arc = arcs.value()
    label = arc.ilabel if label is None else label
    arcs.set_value(pywrapfst.Arc(label, label, weight or arc.weight, arc.nextstate if next is None else next))


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
