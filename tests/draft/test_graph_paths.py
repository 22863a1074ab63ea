"""The p best strings of word lattices composed with n-gram models: against enumeration, the search of sausages, and
OpenFst with failure arcs; refusals of the core.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.problems import problems
from support.refusals import refused
from support.word_lattices import VOCAB, graph_of, path_weight, ranked, spelt, word_lattices

from rescore import _core
from rescore.lattice.sausage import Sausage
from rescore.lattice.word_lattice import WordLattice

alphas = st.one_of(st.integers(-16, 16).map(lambda n: n / 8), st.floats(-4, 4))


def answers(lattice: WordLattice, found):
    """The core's answer for a lattice as a list of (cost, tokens)."""
    cost, first, arcs = found
    return [(c, spelt(lattice, arcs[a:b].tolist())) for c, a, b in zip(cost.tolist(), first[:-1], first[1:])]


@st.composite
def lattice_problems(draw):
    lms = draw(st.lists(oracle.models(VOCAB), max_size=3))
    token = st.integers(0, VOCAB - 1)
    ends = [draw(st.one_of(st.none(), token)) for _ in lms]
    histories = [draw(st.lists(token, max_size=4)) for _ in lms]
    lattices = draw(st.lists(word_lattices(), min_size=1, max_size=3))
    return lms, [draw(alphas) for _ in lms], ends, histories, lattices, draw(st.sampled_from([1, 2, 3, 16, 300]))


@settings(max_examples=100)
@given(lattice_problems(), st.integers(1, 3))
def test_paths_equal_enumeration(problem, threads):
    lms, alpha, ends, histories, lattices, p = problem
    starts = [lm.ngram().start(history) for lm, history in zip(lms, histories)]
    found = _core.best_strings(
        [lm.automaton() for lm in lms],
        [graph_of(lattice, ends) for lattice in lattices],
        np.tile(np.array(starts, np.uint32), (len(lattices), 1)),
        np.array(alpha, np.float64),
        paths=p,
        threads=threads,
    )
    contexts = [lm.context(tuple(history)) for lm, history in zip(lms, histories)]
    for one, lattice in zip(found, lattices):
        best = ranked(lattice, lambda *path: path_weight(*path, lms, alpha, contexts, ends), p)
        assert answers(lattice, one) == [(weight / oracle.FIXED_ONE, string) for weight, string in best]
        cost, first, arcs = one
        for c, a, b in zip(cost.tolist(), first[:-1], first[1:]):  # what is given of a string is its cheapest path
            assert path_weight(lattice, arcs[a:b], lms, alpha, contexts, ends) / oracle.FIXED_ONE == c


@settings(max_examples=100)
@given(problems(most_models=1))
def test_a_sausage_has_the_strings_of_its_own_search(problem):
    lms, batch, alphas, histories, p = problem
    models, rows, ids, cost, _ = oracle.core_arguments(lms, batch, alphas, histories)
    alpha = alphas[0][:1]
    flat = np.full((1, ids.shape[1]), alpha[0], np.float64)
    tokens, costs, count = _core.best_paths(models, rows, ids, cost, flat, paths=p)
    kept = [b for b, sausage in enumerate(batch) if sausage]
    lattices = [WordLattice.from_sausage(Sausage(ids=ids[[b]][0], cost=cost[[b]][0])) for b in kept]
    starts = models[0].start_batch(rows)[kept, None]
    found = _core.best_strings(
        models, [graph_of(lattice, [None]) for lattice in lattices], starts, np.array(alpha), paths=p
    )
    for b, lattice, one in zip(kept, lattices, found):
        ours = {(np.float32(c), string) for c, string in answers(lattice, one)}
        theirs = {(c, tuple(row[row >= 0].tolist())) for c, row in zip(costs[b, : count[b]].tolist(), tokens[b])}
        assert sorted(c for c, _ in ours) == sorted(c for c, _ in theirs)
        most = max(c for c, _ in theirs)  # of those that tie with the last, either may be left out
        assert {one for one in ours if one[0] < most} == {one for one in theirs if one[0] < most}


def chain(*tokens, targets=None, vocab=3):
    n = len(tokens)
    return (
        np.arange(n + 2, dtype=np.int64).clip(max=n),
        np.array(targets or range(1, n + 1), np.int32),
        np.array(tokens, np.int32),
        np.zeros(n),
        np.array([tokens], np.int32),
    )


@pytest.mark.parametrize(
    ("graph", "named"),
    [
        (chain(0, 1, targets=[1, 1]), ["graph 0", "arc 1", "got 1"]),
        (chain(0, 1, targets=[1, 7]), ["arc 1", "below 3", "got 7"]),
        (chain(0, 5), ["arc 1", "below 3", "got 5"]),
        (chain(0, -2), ["arc 1", "got -2"]),
        ((np.array([0, 2, 1, 2]), *chain(0, 1)[1:]), ["arcs by state"]),
    ],
    ids=["loop", "target", "label", "negative", "first"],
)
def test_the_core_checks_every_index(graph, named):
    model = oracle.unigrams([1.0, 2.0, 3.0]).automaton()
    with refused(ValueError, *named):
        _core.best_strings([model], [graph], np.zeros((1, 1), np.uint32), np.ones(1), paths=1)


def test_the_composition_is_bounded():
    model = oracle.unigrams([1.0, 2.0, 3.0]).automaton()
    with refused(ValueError, "1 transitions", "state 1 of 3"):
        _core.best_strings([model], [chain(0, 1)], np.zeros((1, 1), np.uint32), np.ones(1), paths=1, most=1)


def test_sums_beyond_what_weights_hold_are_refused():
    first, targets, tokens, cost, _ = chain(*[0] * 1000)
    labels = np.zeros((0, 1000), np.int32)
    with refused(ValueError, "graph 0", "at most 134217727", "500000000"):
        graph = (first, targets, tokens, cost + 5e5, labels)
        _core.best_strings([], [graph], np.zeros((1, 0), np.uint32), np.zeros(0), paths=1)
    cost[-1] = 5e5  # large itself, in a path that is not
    graph = (first, targets, tokens, cost, labels)
    ((found, _, _),) = _core.best_strings([], [graph], np.zeros((1, 0), np.uint32), np.zeros(0), paths=1)
    assert found.tolist() == [5e5]
