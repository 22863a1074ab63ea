"""Best-first token trees of the native core against the enumeration of all prefixes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_trees import local_trees
from support.oracle import FIXED_ONE, best_prefixes, padded, unigrams
from support.problems import VOCAB, problems
from support.refusals import refused, refuses

from rescore import _core
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree


@settings(max_examples=1000)
@given(problems(), st.integers(1, 512))
def test_equals_enumeration(problem, nodes):
    lms, batch, alphas, histories, _ = problem
    for found, sausage, history in zip(local_trees(lms, batch, alphas, histories, nodes), batch, histories):
        wanted = best_prefixes(sausage, nodes, lms, alphas, [tuple(history)] * len(lms))
        assert found == [(np.float32(-cost / FIXED_ONE), depth, tokens) for cost, depth, tokens in wanted]


@settings(max_examples=200)
@given(problems(), st.integers(1, 40))
def test_trees_are_nested(problem, nodes):
    lms, batch, alphas, histories, _ = problem
    small = local_trees(lms, batch, alphas, histories, nodes)
    assert small == [tree[:nodes] for tree in local_trees(lms, batch, alphas, histories, nodes + 1, threads=2)]


@settings(max_examples=200)
@given(problems(), st.integers(1, 40), st.integers(1, 3))
def test_trees_do_not_depend_on_which_take_turns(problem, nodes, threads):
    lms, batch, alphas, histories, _ = problem
    assert (
        local_trees(lms, batch * 5, alphas, histories * 5, nodes, threads=threads)
        == local_trees(lms, batch, alphas, histories, nodes) * 5
    )


@given(problems())
def test_one_candidate_without_model_is_the_base_draft(problem):
    _, batch, _, histories, _ = problem
    chains = [[slot[:1] for slot in sausage] for sausage in batch]
    for sausage, found in zip(chains, local_trees([], chains, [], histories, 64)):
        draft = tuple(slot[0][0] for slot in sausage)
        assert found == [(0.0, depth, draft[:depth]) for depth in range(1, len(draft) + 1)]


def test_nothing_is_left_of_the_lattice_before():
    """A lattice without candidates has no tree; nothing is read by the tokens of a larger model, which sanitizers would
    see.
    """
    large, small = unigrams([1.0] * 5000), unigrams([1.0] * VOCAB)
    assert len(local_trees([large], [[[(4999, 1.0)]]], [[1.0]], [[]], 4)[0]) == 1
    ids, cost = np.full((5, 1, 1), -1, np.int32), np.full((5, 1, 1), np.inf, np.float32)
    ids[2], cost[2] = 3, 1
    counts = _core.best_tree([small.automaton()], np.full((5, 4), -1, np.int32), ids, cost, np.ones((1, 1)), nodes=4)[
        -1
    ]
    assert counts.tolist() == [0, 0, 1, 0, 0]


def test_misuse():
    lm = unigrams([1.0] * VOCAB)
    refuses(ValueError, lambda: local_trees([lm], [[[(0, 1.0)]]], [[1.0]], [[]], 0), "nodes", "1", "4096")
    with refused(ValueError, "slots T", "1", "32", "33"):
        local_trees([lm], [[[(0, 1.0)]] * 33], [[1.0] * 33], [[]], 1)


@settings(max_examples=50)
@given(problems())
def test_trees_that_are_trusted_would_pass_the_checks(problem):
    lms, batch, alphas, histories, nodes = problem
    ids, cost = padded(batch)
    rows = np.array([[-1] * (4 - len(history)) + history for history in histories], np.int32)
    rescorer = Rescorer([lm.ngram() for lm in lms], alpha=np.array(alphas) if lms else 1.0)
    found = rescorer.trees(Sausage(ids=ids, cost=cost), rows, nodes)
    for lattice in range(len(batch)):
        tree = found[lattice]
        TokenTree(tokens=tree.tokens, parents=tree.parents, depths=tree.depths, logq=tree.logq)
