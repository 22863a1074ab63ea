"""Word lattices from arcs."""

import numpy as np
import pytest
from hypothesis import given
from support.refusals import refuses
from support.word_lattices import arc_paths, spelt, word_lattices

from rescore.lattice.sausage import Sausage
from rescore.lattice.word_lattice import NOTHING, WordLattice


@given(word_lattices())
def test_states_are_in_topological_order_and_arcs_sorted(lattice):
    assert lattice.first[0] == 0 and lattice.first[-1] == lattice.arcs
    for state in range(lattice.states):
        own = slice(int(lattice.first[state]), int(lattice.first[state + 1]))
        assert (np.diff(lattice.tokens[own]) >= 0).all() and (lattice.targets[own] > state).all()
    assert (lattice.tokens[lattice.targets == lattice.states - 1] == NOTHING).all()


def test_numbers_of_states_are_free_and_what_the_start_does_not_reach_is_left_out():
    lattice = WordLattice.from_arcs(
        [70, 5, 70, 99], [1, 2, 3, 4], [5, 900, 900, 5], np.zeros((4, 2)), start=70, final={900: (0, 0), 5: (1, 2)}
    )
    assert {spelt(lattice, path) for path in arc_paths(lattice)} == {(1,), (1, 2), (3,)}
    assert lattice.states == 4 and lattice.costs.sum() == 3


def test_a_sausage_is_a_word_lattice():
    sausage = Sausage.from_topk([[3, 1], [2, -1], [-1, -1]], np.log([[0.5, 0.4], [0.9, 0.1], [0.5, 0.5]]))
    lattice = WordLattice.from_sausage(sausage)
    strings = {spelt(lattice, path): lattice.costs[list(path)].sum() for path in arc_paths(lattice)}
    assert strings == pytest.approx({(3, 2): -np.log(0.45), (1, 2): -np.log(0.36)})


@pytest.mark.parametrize(
    ("arcs", "named"),
    [([(0, 1, 7), (7, 2, 0)], ["state 0", "cycle"]), ([(0, 1, 1), (1, NOTHING, 1)], ["state 1", "cycle"])],
)
def test_a_cycle_is_named(arcs, named):
    source, tokens, targets = np.array(arcs).T
    costs = np.zeros((len(arcs), 2))
    refuses(ValueError, lambda: WordLattice.from_arcs(source, tokens, targets, costs, final={1: (0, 0)}), *named)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"tokens": [1, 2]}, ["[1], [2], [1]"]),
        ({"targets": [[1]]}, ["[1, 1]"]),
        ({"costs": [(0, 0)] * 3}, ["[3, 2]"]),
        ({"costs": [0.5]}, ["costs [A, 2]"]),
        ({"final": {1: (0,)}}, ["pair", "[1, 1]"]),
        ({"words": ("a",)}, ["tokens", "below 1", "got 1"]),
        ({"lm_scale": 0.0, "name": "one"}, ["one", "lm_scale 0.0"]),
        ({"word_penalty": np.nan}, ["word_penalty nan"]),
    ],
)
def test_what_does_not_fit_together_is_refused(changed, named):
    given = {"source": [0], "tokens": [1], "targets": [1], "costs": [(0, 0)], "final": {1: (0, 0)}}
    assert WordLattice.from_arcs(**given, words=("a", "b")).arcs == 2
    refuses(ValueError, lambda: WordLattice.from_arcs(**(given | changed)), *named)


def test_costs_are_bounded():
    refuses(ValueError, lambda: WordLattice.from_arcs([0], [1], [1], [(2e6, 0)], final={1: (0, 0)}), "2000000")
    refuses(ValueError, lambda: WordLattice.from_arcs([0], [1], [1], [(0, np.nan)], final={1: (0, 0)}), "nan")
    refuses(ValueError, lambda: WordLattice.from_arcs([0], [2**31], [1], [(0, 0)], final={1: (0, 0)}), 2**31)
    refuses(ValueError, lambda: WordLattice.from_arcs([0], [1], [1], [(0, 0)], final={1: (np.inf, 0)}), "end")
    lattice = WordLattice.from_arcs([0, 0], [1, 2], [1, 1], [(0, 0), (0, np.inf)], final={1: (0, 0)})
    assert lattice.tokens.tolist() == [1, NOTHING]
