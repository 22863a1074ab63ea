"""Trees of the most probable prefixes of normalised lattices against the enumeration of all prefixes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_trees import local_trees, prefixes
from support.oracle_normalised import Enumerated, normalise, strings
from support.problems import problems, temperatures
from support.refusals import refuses

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lm.model import example


def search(problem, temperature, local, nodes, **options):
    """The tree of every lattice as (logq, depth, tokens), parents checked."""
    lms, batch, alphas, histories, _ = problem
    columns = normalise(lms, batch, alphas, histories, temperature=temperature, local=local).trees(
        nodes=nodes, **options
    )
    return [prefixes(*(column[b] for column in columns)) for b in range(len(batch))]


@settings(max_examples=400)
@given(problems(), temperatures, st.booleans(), st.integers(1, 300))
def test_equals_enumeration(problem, temperature, local, nodes):
    lms, batch, alphas, histories, _ = problem
    every, _ = strings(batch)
    for b, found in enumerate(search(problem, temperature, local, nodes)):
        sausage = batch[b]
        slow = Enumerated(sausage, lms, alphas, histories[b], temperature, local=local)
        ranks = {string[:t] for string in every[b] for t in range(1, len(string) + 1)}
        mass = {
            tuple(sausage[t][rank][0] for t, rank in enumerate(prefix)): slow.log_mass_of(prefix) for prefix in ranks
        }
        assert len(found) == min(nodes, len(mass)) and len({tokens for *_, tokens in found}) == len(found)
        rounding = slow.rounding + len(sausage) * 2.0**-32  # of the sums, and of every step to a multiple of 2^-32 nats
        for (logq, _, tokens), best in zip(found, sorted(mass.values(), reverse=True)):
            assert abs(mass[tokens] - best) <= 2 * rounding  # as probable as the one enumerated in its place
            assert abs(logq - mass[tokens]) <= rounding + 1e-6 * abs(best)


@settings(max_examples=100)
@given(problems(), st.integers(1, 40))
def test_trees_are_nested_and_threads_do_not_matter(problem, nodes):
    small = search(problem, 1.0, False, nodes)
    assert small == [tree[:nodes] for tree in search(problem, 1.0, False, nodes + 1, threads=2)]


@settings(max_examples=100)
@given(problems())
def test_locally_they_hold_what_the_rescorers_hold(problem):
    """All prefixes, with the same probabilities."""
    lms, batch, alphas, histories, _ = problem
    ours, theirs = search(problem, 1.0, True, 512), local_trees(lms, batch, alphas, histories, 512)
    for own, other in zip(ours, theirs):
        wanted = {tokens: logq for logq, _, tokens in other}
        assert {tokens for *_, tokens in own} == set(wanted)
        assert all(abs(logq - wanted[tokens]) <= 1e-6 * max(1, abs(logq)) for logq, _, tokens in own)


def test_worked_example(worked):
    """Prefixes of the example by the sum over its eight drafts."""
    model, sausage = worked
    lattice = Rescorer(model, alpha=1.0).normalise(sausage, example.HISTORY)
    tree = lattice.tree(14)
    drafts = np.array([path for path in tree.paths() if (path >= 0).all()], np.int32)
    q = np.exp(lattice.logq(drafts))
    assert len(drafts) == 8 and q.sum() == pytest.approx(1)
    for path, logq in zip(strings_of(tree), tree.logq):
        assert logq == pytest.approx(np.log(q[(drafts[:, : len(path)] == path).all(1)].sum()), abs=1e-6)
    assert tree.size == 14 and (np.diff(tree.logq) <= 0).all()


def strings_of(tree) -> list[list[int]]:
    out: list[list[int]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist()):
        out.append([*(out[parent] if parent >= 0 else []), token])
    return out


def test_what_may_follow_counts():
    """b is the worse first token, but the only one that something probable may follow: pushed q prefers it."""
    from support.oracle import Backoff

    lm = Backoff(3, 2, {(): {0: 1.0, 1: 1.0, 2: 20.0}, (1,): {2: 0.1}}, {(): 0.0, (1,): 3.0})
    batch = [[[(0, 1.0), (1, 1.5)], [(2, 0.0)]]]
    trees = {local: search(([lm], batch, [[1.0, 1.0]], [[]], 1), 1.0, local, 1)[0] for local in (True, False)}
    assert [trees[local][0][2] for local in (True, False)] == [(0,), (1,)]


def test_misuse(worked):
    model, sausage = worked
    batch = Sausage(ids=sausage.ids[None], cost=sausage.cost[None])
    lattice = Rescorer(model, alpha=1.0).normalise(batch, np.array([example.HISTORY], np.int32))
    refuses(TypeError, lambda: lattice.tree(3), "tree", "batch", "[T, K]")
    refuses(ValueError, lambda: lattice.tree(0), "nodes", "1", "4096")
    assert len(lattice.tree(3)) == 1
