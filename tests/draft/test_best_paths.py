"""p best paths and best-first trees of the native core against the enumeration of all paths and prefixes."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.core_trees import local_trees
from support.oracle import FIXED_ONE, Backoff
from support.problems import VOCAB, problems

from rescore import Rescorer, Sausage, _core


def search(lms, batch, alphas, histories, paths, **options):
    """The core's answer as a list of (cost, tokens) for each lattice."""
    ids, cost = oracle.padded(batch)
    automata = [lm.automaton() for lm in lms]
    alpha = np.array(alphas, np.float64).reshape(len(lms), ids.shape[1])
    tokens, path_cost, count = _core.best_paths(
        automata, oracle.padded_histories(histories), ids, cost, alpha, paths=paths, **options
    )
    for b, n in enumerate(count):
        assert (tokens[b, n:] == -1).all() and np.isposinf(path_cost[b, n:]).all()
        assert (tokens[b, :n, len(batch[b]) :] == -1).all()
    return [
        [(path_cost[b, i], tuple(tokens[b, i, : len(batch[b])].tolist())) for i in range(count[b])]
        for b in range(len(batch))
    ]


def batch_of(lattices, slots=3, width=4, vocab=VOCAB, contexts=1) -> tuple[Sausage, np.ndarray]:
    """Random lattices and their histories of one token."""
    draw = np.random.default_rng(lattices)
    ids = np.argsort(draw.random((lattices, slots, vocab)), axis=-1)[:, :, :width].astype(np.int32)
    cost = np.sort(draw.exponential(2, ids.shape), axis=-1).astype(np.float32)
    return Sausage(ids=ids, cost=cost), draw.integers(0, contexts, (lattices, 1), np.int32)


def expected(problem):
    lms, batch, alphas, histories, paths = problem
    out = []
    for sausage, history in zip(batch, histories):
        ranked = oracle.best_strings(
            sausage,
            paths,
            lambda r, s=sausage, h=history: oracle.failure_cost(s, r, lms, alphas, [tuple(h)] * len(lms)),
        )
        out.append([(np.float32(cost / FIXED_ONE), tokens) for cost, tokens in ranked])
    return out


@settings(max_examples=300)
@given(problems(), st.integers(1, 3))
def test_failure_semantics_equals_enumeration(problem, threads):
    assert search(*problem, threads=threads) == expected(problem)


@settings(max_examples=200)
@given(problems(), st.randoms())
def test_costs_beyond_what_weights_hold_are_never_paid(problem, random):
    """A candidate that costs more nats than a weight may have is not taken, whatever failure arcs with negative weights
    lead there.
    """
    lms, batch, alphas, histories, paths = problem
    dear = [
        [[(token, 1e7 if random.random() < 0.3 else cost) for token, cost in slot] for slot in sausage]
        for sausage in batch
    ]
    left = [[[(token, cost) for token, cost in slot if cost < 1e7] for slot in sausage] for sausage in dear]
    for own, sausage, history in zip(search(lms, dear, alphas, histories, paths), left, histories):
        if all(sausage):
            assert own == expected((lms, [sausage], alphas, [history], paths))[0]
        else:
            assert own == []


@pytest.mark.parametrize("seed", range(3))
def test_largest_sizes(seed):
    """T = 32, K = 64, p = 1024: against Viterbi over single states for the best cost."""
    draw = np.random.default_rng(seed)
    sausages, histories = batch_of(1, slots=32, width=64, vocab=80)
    ids, cost, unigram = sausages.ids, sausages.cost, draw.exponential(5, 80)
    lm = oracle.unigrams(unigram.tolist()).automaton()
    tokens, path_cost, count = _core.best_paths([lm], histories, ids, cost, np.ones((1, 32)), paths=1024)
    assert count[0] == 1024
    assert len(np.unique(tokens[0], axis=0)) == 1024
    assert (np.diff(path_cost[0]) >= 0).all()
    best = (cost[0] + unigram.astype(np.float32)[ids[0]]).min(axis=1).astype(float).sum()
    assert path_cost[0, 0] == pytest.approx(best, rel=1e-5)


def long_lists() -> Backoff:
    """A bigram model of 640 tokens, of which 24 are contexts with arcs for 548 or 549 of them: lists that are kept as
    bits.
    """
    draw = np.random.default_rng(1)
    arcs = {(): dict(enumerate(draw.random(640).tolist()))}
    arcs |= {(t,): {u: float(np.float32(draw.random())) for u in range(640) if u % 7 != t % 7} for t in range(24)}
    return Backoff(640, 2, arcs, {context: 0.5 for context in arcs})


def test_threads_of_python_share_the_pool():
    """Calls at the same time, each on several threads, answer as enumeration does; so does a forked process."""
    lm = long_lists()
    batches = [batch_of(lattices, width=9, vocab=48, contexts=24) for lattices in (1, 7, 64, 33)]
    rescorer, wanted = Rescorer(lm.ngram(), alpha=0.5, threads=3), []
    for sausages, histories in batches:
        slots = [[list(zip(*slot)) for slot in zip(ids, cost)] for ids, cost in zip(sausages.ids, sausages.cost)]
        best = expected(([lm], slots, [[0.5] * 3], histories.tolist(), 5))
        wanted.append([[list(tokens) for _, tokens in own] for own in best])
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            found = pool.map(lambda batch: rescorer.paths(*batch, 5).tokens.tolist(), batches)
            assert list(found) == wanted
    child = os.fork()
    if child == 0:
        os._exit(0 if rescorer.paths(*batches[2], 5).tokens.tolist() == wanted[2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@settings(max_examples=250)
@given(problems(), st.integers(1, 512), st.integers(1, 3), st.sampled_from([1, 5]))
def test_trees_equal_enumeration(problem, nodes, threads, copies):
    """Copies: enough lattices that their searches take turns."""
    lms, batch, alphas, histories, _ = problem
    found = local_trees(lms, batch * copies, alphas, histories * copies, nodes, threads=threads)
    for own, sausage, history in zip(found, batch * copies, histories * copies):
        wanted = oracle.best_prefixes(sausage, nodes, lms, alphas, [tuple(history)] * len(lms))
        assert own == [(np.float32(-cost / FIXED_ONE), depth, tokens) for cost, depth, tokens in wanted]


def test_nothing_is_left_of_the_lattice_before():
    """A lattice without candidates has no tree; nothing is read by the tokens of a larger model, which sanitizers would
    see.
    """
    large, small = oracle.unigrams([1.0] * 5000), oracle.unigrams([1.0] * VOCAB)
    assert len(local_trees([large], [[[(4999, 1.0)]]], [[1.0]], [[]], 4)[0]) == 1
    ids, cost = np.full((5, 1, 1), -1, np.int32), np.full((5, 1, 1), np.inf, np.float32)
    ids[2], cost[2] = 3, 1
    counts = _core.best_tree([small.automaton()], np.full((5, 4), -1, np.int32), ids, cost, np.ones((1, 1)), nodes=4)[
        -1
    ]
    assert counts.tolist() == [0, 0, 1, 0, 0]
