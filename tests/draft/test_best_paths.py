"""p best paths and best-first trees of the native core against the enumeration of all paths and prefixes."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_trees import local_trees
from support.oracle import (
    FIXED_ONE,
    Backoff,
    best_prefixes,
    best_strings,
    costs,
    failure_cost,
    padded,
    padded_histories,
    unigrams,
)
from support.problems import VOCAB, problems
from support.refusals import refuses

from rescore import _core
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lm.model.ngram import NGram


def search(lms, batch, alphas, histories, paths, **options):
    """The core's answer as a list of (cost, tokens) for each lattice."""
    ids, cost = padded(batch)
    automata = [lm.automaton() for lm in lms]
    alpha = np.array(alphas, np.float64).reshape(len(lms), ids.shape[1])
    tokens, path_cost, count = _core.best_paths(
        automata, padded_histories(histories), ids, cost, alpha, paths=paths, **options
    )
    for b, n in enumerate(count):
        assert (tokens[b, n:] == -1).all() and np.isposinf(path_cost[b, n:]).all()
        assert (tokens[b, :n, len(batch[b]) :] == -1).all()
    return [
        [(path_cost[b, i], tuple(tokens[b, i, : len(batch[b])].tolist())) for i in range(count[b])]
        for b in range(len(batch))
    ]


def expected(problem, string_cost):
    lms, batch, alphas, histories, paths = problem
    out = []
    for sausage, history in zip(batch, histories):
        ranked = best_strings(
            sausage, paths, lambda r, s=sausage, h=history: string_cost(s, r, lms, alphas, [tuple(h)] * len(lms))
        )
        out.append([(np.float32(cost / FIXED_ONE), tokens) for cost, tokens in ranked])
    return out


@settings(max_examples=500)
@given(problems())
def test_failure_semantics_equals_enumeration(problem):
    assert search(*problem) == expected(problem, failure_cost)


@settings(max_examples=300)
@given(problems(), st.randoms())
def test_costs_beyond_what_weights_hold_are_never_paid(problem, random):
    """A candidate that costs more nats than a weight may have is not taken, whatever failure arcs with negative weights
    lead there.
    """
    lms, batch, alphas, histories, paths = problem
    beyond = [
        [(token, 1e7 if random.random() < 0.3 else cost) for token, cost in slot]
        for sausage in batch
        for slot in sausage
    ]
    slots = iter(beyond)
    dear = [[next(slots) for _ in sausage] for sausage in batch]
    left = [[[(token, cost) for token, cost in slot if cost < 1e7] for slot in sausage] for sausage in dear]
    for own, sausage, history in zip(search(lms, dear, alphas, histories, paths), left, histories):
        if all(sausage):
            assert own == expected((lms, [sausage], alphas, [history], paths), failure_cost)[0]
        else:
            assert own == []


@settings(max_examples=300)
@given(problems(most_models=1))
def test_laws(problem):
    lms, batch, alphas, histories, paths = problem
    exact = search(*problem)
    for found in exact:
        strings = [tokens for _, tokens in found]
        assert len(set(strings)) == len(strings)
        assert [cost for cost, _ in found] == sorted(cost for cost, _ in found)
    # The q best are the beginning of the p best, and threads change nothing.
    fewer = search(lms, batch, alphas, histories, max(1, paths // 2), threads=2)
    assert fewer == [found[: max(1, paths // 2)] for found in exact]
    # Weight 0: the order of the head costs alone.
    silent = [[0.0] * len(alphas[0])]
    assert search(lms, batch, silent, histories, paths) == search([], batch, [], histories, paths)


@settings(max_examples=20)
@given(st.data())
def test_largest_sizes(data):
    """T = 32, K = 64, p = 1024: against Viterbi over single states for the best cost, and the laws."""
    vocab = 80
    seed = data.draw(st.integers(0, 2**31))
    draw = np.random.default_rng(seed)
    ids = np.argsort(draw.random((1, 32, vocab)), axis=-1)[:, :, :64].astype(np.int32)
    cost = np.sort(draw.exponential(2, (1, 32, 64)), axis=-1).astype(np.float32)
    unigram = data.draw(st.lists(costs, min_size=vocab, max_size=vocab))
    lm = unigrams(unigram).automaton()
    tokens, path_cost, count = _core.best_paths(
        [lm], np.zeros((1, 0), np.int32), ids, cost, np.ones((1, 32)), paths=1024
    )
    assert count[0] == 1024
    assert len(np.unique(tokens[0], axis=0)) == 1024
    assert (np.diff(path_cost[0]) >= 0).all()
    best = (cost[0] + np.array(unigram, np.float32)[ids[0]]).min(axis=1).astype(float).sum()
    assert path_cost[0, 0] == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"paths": 0}, ValueError, ["paths p", "1024"]),
        ({"paths": 1025}, ValueError, ["paths p", "1024", "1025"]),
        ({"threads": 0}, ValueError, ["threads", "1024"]),
        ({"ids": np.zeros((1, 33, 2), np.int32)}, ValueError, ["slots T", "1", "32", "33"]),
        ({"nodes": 0}, ValueError, ["nodes", "1", "4096"]),
        ({"ids": np.zeros((1, 2, 65), np.int32)}, ValueError, ["candidates K", "1", "64", "65"]),
        ({"ids": np.zeros((1, 2, 2), np.int64)}, TypeError, ["incompatible"]),
        ({"ids": np.full((1, 1, 1), 99, np.int32)}, ValueError, ["0", "7", "99"]),
        ({"ids": np.full((1, 1, 1), -2, np.int32)}, ValueError, ["-2"]),
        ({"histories": np.zeros((2, 1), np.int32)}, ValueError, ["1", "2"]),
        ({"alpha": np.zeros((1, 3))}, ValueError, ["1", "3"]),
    ],
)
def test_misuse(change, error, message):
    lm = unigrams([1.0] * VOCAB).automaton()
    call = {
        "histories": np.zeros((1, 1), np.int32),
        "ids": np.zeros((1, 1, 1), np.int32),
        "alpha": np.ones((1, 1)),
        "paths": 1,
        **change,
    }
    call["cost"] = np.zeros(call["ids"].shape, np.float32)
    arrays = [call.pop(name) for name in ("histories", "ids", "cost", "alpha")]
    size = {"nodes": call.pop("nodes", 1)}
    if "nodes" not in change:
        refuses(error, lambda: _core.best_paths([lm], *arrays, **call), *message)
    if "paths" not in change:
        call.pop("paths")
        refuses(error, lambda: _core.best_tree([lm], *arrays, **call, **size), *message)


def batch_of(lattices: int) -> tuple[Sausage, np.ndarray]:
    draw = np.random.default_rng(lattices)
    ids = np.argsort(draw.random((lattices, 3, VOCAB)), axis=-1)[:, :, :4].astype(np.int32)
    return Sausage(ids=ids, cost=np.sort(draw.exponential(2, ids.shape), axis=-1).astype(np.float32)), np.zeros(
        (lattices, 1), np.int32
    )


def long_lists() -> NGram:
    """A bigram model of 640 tokens, of which 24 are contexts with arcs for 548 or 549 of them: lists that are kept as
    bits.
    """
    draw = np.random.default_rng(1)
    arcs = {(): dict(enumerate(draw.random(640).tolist()))}
    arcs |= {(t,): {u: float(np.float32(draw.random())) for u in range(640) if u % 7 != t % 7} for t in range(24)}
    return Backoff(640, 2, arcs, {context: 0.5 for context in arcs}).ngram()


def test_threads_of_python_share_the_pool():
    """Calls at the same time, each on several threads, answer as one after the other; so does a forked process."""
    draw = np.random.default_rng(0)
    batches = []
    for lattices in (1, 7, 64, 33):
        ids = np.argsort(draw.random((lattices, 3, 48)), axis=-1)[:, :, :9].astype(np.int32)
        batches.append(
            (
                Sausage(ids=ids, cost=np.sort(draw.exponential(2, ids.shape), axis=-1).astype(np.float32)),
                draw.integers(0, 24, (lattices, 1), np.int32),
            )
        )
    model = long_lists()
    alone, rescorer = Rescorer(model), Rescorer(long_lists(), threads=3)
    expected = [alone.paths(*batch, 5).tokens for batch in batches]
    # Scoring a text finds its arcs by another way than bits.
    for (sausage, rows), strings in zip(batches, expected):
        found = alone.paths(sausage, rows, 5).cost
        head = np.where(strings[:, :, :, None] == sausage.ids[:, None], sausage.cost[:, None], 0).sum((-1, -2))
        states = np.repeat(model.core.start_batch(rows), 5)
        score, _ = model.core.score(strings.ravel(), np.arange(0, strings.size + 1, 3), states)
        assert found.ravel() == pytest.approx(
            head.ravel() + alone.alpha.ravel()[0] * score.reshape(-1, 3).sum(1), abs=1e-4
        )
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            for mine, other in zip(pool.map(lambda batch: rescorer.paths(*batch, 5).tokens, batches), expected):
                np.testing.assert_array_equal(mine, other)
    child = os.fork()
    if child == 0:
        os._exit(0 if (rescorer.paths(*batches[2], 5).tokens == expected[2]).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@settings(max_examples=400)
@given(problems(), st.integers(1, 512))
def test_trees_equal_enumeration(problem, nodes):
    lms, batch, alphas, histories, _ = problem
    for found, sausage, history in zip(local_trees(lms, batch, alphas, histories, nodes), batch, histories):
        wanted = best_prefixes(sausage, nodes, lms, alphas, [tuple(history)] * len(lms))
        assert found == [(np.float32(-cost / FIXED_ONE), depth, tokens) for cost, depth, tokens in wanted]


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


@settings(max_examples=200)
@given(problems(), st.integers(1, 40), st.integers(1, 3))
def test_trees_are_nested_and_do_not_depend_on_which_take_turns(problem, nodes, threads):
    lms, batch, alphas, histories, _ = problem
    small = local_trees(lms, batch, alphas, histories, nodes)
    larger = local_trees(lms, batch * 5, alphas, histories * 5, nodes + 1, threads=threads)
    assert [tree[:nodes] for tree in larger] == small * 5
