"""Lattices composed with acceptors, against OpenFst's composition of sausage, acceptor and language model."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.drafts import strings
from support.log_fsts import exact, log_model, log_sausage
from support.oracle import models, padded, sausages
from support.problems import VOCAB
from support.refusals import refused, refuses
from support.steps import texts_of

from rescore import Calibration, Rescorer, Sausage
from rescore.lattice.structure import Acceptor, begin
from rescore.lattice.tree import Trees

pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")

places = st.integers(0, 3)
acceptors = st.tuples(
    st.dictionaries(st.tuples(places, st.integers(0, VOCAB - 1)), places, min_size=4, max_size=20),
    st.sets(places, min_size=1),
).map(lambda drawn: ([(*key, to) for key, to in drawn[0].items()], drawn[1]))


def fst_of(arcs, final, every_state_final=False):
    """An acceptor as OpenFst has it, without states that lead to no final one."""
    fst = pywrapfst.VectorFst("log64")
    fst.add_states(4)
    fst.set_start(0)
    for state, token, to in arcs:
        fst.add_arc(state, pywrapfst.Arc(token + 1, token + 1, pywrapfst.Weight.one("log64"), to))
    for state in final:
        fst.set_final(state)
    fst.connect()
    for state in fst.states() if every_state_final else ():
        fst.set_final(state)
    return fst


problems = st.tuples(
    models(VOCAB),
    sausages(VOCAB, most_slots=3).filter(bool),
    acceptors.filter(lambda drawn: fst_of(*drawn).num_states()),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(st.integers(0, VOCAB - 1), max_size=3),
)


def composed(problem, connect):
    lm, sausage, (arcs, final), alpha, history = problem
    bounds = fst_of(arcs, final, every_state_final=True).arcsort("ilabel")
    bounded = pywrapfst.compose(log_sausage(sausage), bounds, connect=connect)
    return pywrapfst.compose(bounded, log_model(lm, alpha, history), connect=connect)


def walked(fst):
    """{tokens: (cost, ln q)} of all prefixes of a deterministic acceptor, with q of an arc its share of the state's."""
    found, open_ = {}, [((), 0.0, 0.0, fst.start())] if fst.num_states() else []
    for before, paid, logq, state in open_:
        arcs = [(arc.ilabel - 1, exact(arc.weight), arc.nextstate) for arc in fst.arcs(state)]
        total = math.log(math.fsum(math.exp(-cost) for _, cost, _ in arcs)) if arcs else 0.0
        for token, cost, to in arcs:
            found[(*before, token)] = paid + cost, logq - cost - total
            open_.append(((*before, token), paid + cost, logq - cost - total, to))
    return found


def costs(problem):
    """{tokens: cost} of the composition's whole strings."""
    found = walked(composed(problem, connect=True))
    return {tokens: cost for tokens, (cost, _) in found.items() if len(tokens) == len(problem[1])}


def rescored(problem):
    """A rescorer, a batch of two equal lattices, their histories, an acceptor."""
    lm, sausage, (arcs, final), alpha, history = problem
    ids, cost = padded([sausage, sausage])
    lattices, histories = Sausage(ids=ids, cost=cost), np.array([history] * 2, np.int32)
    return Rescorer(lm.ngram(), alpha=alpha), lattices, histories, Acceptor(arcs, final=final)


@settings(max_examples=100, deadline=None)
@given(problems, st.sampled_from([1, 3, 300]))
def test_paths(problem, p):
    rescorer, lattices, histories, acceptor = rescored(problem)
    sausage = problem[1]
    ranks = [{token: rank for rank, (token, _) in enumerate(slot)} for slot in sausage]
    every = costs(problem)
    best = sorted(every, key=lambda tokens: (every[tokens], [rank[w] for rank, w in zip(ranks, tokens)]))[:p]
    drafts = rescorer.paths(lattices, histories, p, acceptor=acceptor)
    for tokens, cost, count in zip(drafts.tokens, drafts.cost, drafts.count):
        assert [tuple(path) for path in tokens[:count].tolist()] == best
        assert cost[:count].tolist() == [np.float32(every[path]) for path in best]


@settings(max_examples=100, deadline=None)
@given(problems, st.sampled_from([1, 5, 300]))
def test_trees(problem, nodes):
    rescorer, lattices, histories, acceptor = rescored(problem)
    every = {tokens: logq for tokens, (_, logq) in walked(composed(problem, connect=False)).items()}
    best = sorted(every.values(), reverse=True)[:nodes]
    for tree in rescorer.trees(lattices, histories, nodes, acceptor=acceptor):
        assert tree.logq.tolist() == pytest.approx(best, abs=1e-5)
        assert tree.logq.tolist() == pytest.approx([every[tokens] for tokens in strings(tree)], abs=1e-5)


@settings(max_examples=100, deadline=None)
@given(problems)
def test_q(problem):
    """Pushed in the log semiring."""
    rescorer, lattices, histories, acceptor = rescored(problem)
    q = rescorer.normalise(lattices, histories, acceptor=acceptor)
    every, slots = costs(problem), len(problem[1])
    uniforms = np.random.default_rng(0).random((2, 20, slots))
    sampled = q.sample(uniforms)
    if not every:
        assert (sampled.tokens[:, :, -1] == -1).all()
        return
    assert {tuple(path) for path in sampled.tokens.reshape(-1, slots).tolist()} <= every.keys()
    log_mass = math.log(math.fsum(math.exp(-cost) for cost in every.values()))
    wanted = [-cost - log_mass for cost in every.values()]
    assert q.logq(np.array([[*every]] * 2, np.int32))[1].tolist() == pytest.approx(wanted, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(problems)
def test_trees_under_a_calibrated_q(problem):
    """As of the acceptor's states, which test_best_tree.py compares with enumeration."""
    _, lattices, histories, acceptor = rescored(problem)
    rescorer = Rescorer(problem[0].ngram(), calibration=Calibration())
    got = rescorer.trees(lattices, histories, 20, acceptor=acceptor)
    bound = acceptor.start(VOCAB, ())
    texts = texts_of([history[history >= 0] for history in histories], state=[bound] * 2)
    wanted = rescorer.trees(lattices, texts, 20)
    for name in Trees.__slots__:
        np.testing.assert_array_equal(getattr(got, name), getattr(wanted, name))


@settings(max_examples=100, deadline=None)
@given(acceptors)
@example(([(0, 1, 1), (1, 1, 1), (1, 2, 2)], {2}))
def test_states_are_those_of_the_fst(drawn):
    """Step by step, from arcs and from the FST; tokens that lead to no final state are not allowed."""
    arcs, final = drawn
    fst = fst_of(arcs, final)
    if not fst.num_states():
        refuses(ValueError, lambda: Acceptor(arcs, final=final), "0")
        return
    for made in (Acceptor(arcs, final=final), Acceptor.of_fst(fst)):
        open_, seen = [(made.start(VOCAB, {VOCAB - 1}), fst.start())], set()
        for state, place in open_:
            follow = {arc.ilabel - 1: arc.nextstate for arc in fst.arcs(place)}
            ended = fst.final(place) != pywrapfst.Weight.zero("log64")
            assert state.accepting == ended
            wanted = {token for token in follow if token != VOCAB - 1} | ({VOCAB - 1} if ended else set())
            assert set(np.flatnonzero(state.mask())) == wanted and state.forced == (len(wanted) == 1)
            if place not in seen:
                seen.add(place)
                open_ += [(state.step(token), to) for token, to in follow.items() if token != VOCAB - 1]


def test_transducers_and_arcs_that_are_refused():
    transducer = fst_of([(0, 0, 1)], {1})
    transducer.add_arc(0, pywrapfst.Arc(1, 2, pywrapfst.Weight.one("log64"), 1))
    refuses(ValueError, lambda: Acceptor.of_fst(transducer), "1:2")
    for token, *others in ((1, (0, 1, 0)), (-1,), (1 << 31,)):
        with refused(ValueError, token):
            Acceptor([(0, token, 1), *others], final=[1])


def test_tokens_past_the_vocabulary_are_allowed_nowhere():
    arcs = [(0, token, 1) for token in (5, 32, 64)]
    assert np.flatnonzero(Acceptor(arcs, final=[1]).start(64, ()).mask()).tolist() == [5, 32]


def test_ends_that_are_no_ids_of_the_model_end_nothing():
    """-1 stands for none in `generate`; a model of fewer ids has ends beyond its own."""
    acceptor = Acceptor([(0, 5, 1)], final=[1])
    for ends in ([2], [2, -1], [64, 2]):
        state = begin(acceptor, 64, ends, []).step(5)
        assert np.flatnonzero(state.mask()).tolist() == [2] and state.step(2).ended
    refuses(ValueError, lambda: begin(acceptor, 64, [-1, 64], []), "structure", "0..63", "-1")
