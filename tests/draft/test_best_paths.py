"""p best paths of the native core against the enumeration of all paths."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle import FIXED_ONE, Backoff, best_strings, costs, failure_cost, padded, padded_histories, unigrams
from support.problems import VOCAB, problems
from support.refusals import refused, refuses

from rescore import _core
from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import Drafts, Trees
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


@settings(max_examples=2000)
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


@settings(max_examples=200)
@given(problems(most_models=1))
def test_cost_is_head_cost_plus_score(problem):
    lms, batch, alphas, histories, paths = problem
    lm = lms[0].automaton()
    for sausage, history, found in zip(batch, histories, search(*problem)):
        state = lm.start(np.array(history, np.int32))
        for cost, tokens in found:
            score, _ = lm.score(
                np.array(tokens, np.int32), np.array([0, len(tokens)], np.int64), np.array([state], np.uint32)
            )
            head = [dict(slot)[token] for slot, token in zip(sausage, tokens)]
            total = sum(h + a * s for h, a, s in zip(head, alphas[0], score.tolist()))
            assert cost == pytest.approx(total, abs=1e-4)


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
    with refused(error, *message):
        _core.best_paths([lm], call.pop("histories"), call.pop("ids"), call.pop("cost"), call.pop("alpha"), **call)


def batch_of(lattices: int) -> tuple[Sausage, np.ndarray]:
    draw = np.random.default_rng(lattices)
    ids = np.argsort(draw.random((lattices, 3, VOCAB)), axis=-1)[:, :, :4].astype(np.int32)
    return Sausage(ids=ids, cost=np.sort(draw.exponential(2, ids.shape), axis=-1).astype(np.float32)), np.zeros(
        (lattices, 1), np.int32
    )


def columns(answer: Drafts | Trees) -> list[np.ndarray]:
    return [
        answer.tokens,
        answer.count,
        *([answer.cost] if isinstance(answer, Drafts) else [answer.parents, answer.depths, answer.logq]),
    ]


@pytest.mark.parametrize("name, size", [("paths", 5), ("trees", 9)])
def test_answers_are_written_where_the_caller_wants_them(name, size):
    call = getattr(Rescorer(threads=2), name)
    first, second = batch_of(3), batch_of(3)
    second[0].ids[:] = second[0].ids[::-1].copy()
    out = call(*first, size)
    before = columns(out)
    assert call(*second, size, out=out) is out
    assert all(a is b for a, b in zip(columns(out), before))
    for mine, other in zip(columns(out), columns(call(*second, size))):
        np.testing.assert_array_equal(mine, other)
    single = call(second[0][0], second[1][0], size) if name == "paths" else None
    if single is not None:
        assert call(second[0][1], second[1][1], size, out=single) is single
        np.testing.assert_array_equal(single.tokens, out.tokens[1])


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"tokens": np.zeros((3, 5, 2), np.int32)}, ValueError, ["out", "3", "2"]),
        ({"tokens": np.zeros((2, 5, 3), np.int32)}, ValueError, ["out", "3", "0", "2"]),
        ({"cost": np.zeros((3, 5), np.float64)}, TypeError, ["out"]),
        ({"cost": np.zeros((5, 3), np.float32).T}, TypeError, ["out"]),
        ({"count": np.zeros((3, 1), np.int32)}, TypeError, ["out"]),
    ],
)
def test_misuse_of_out(change, error, message):
    shapes = {
        "tokens": np.zeros((3, 5, 3), np.int32),
        "cost": np.zeros((3, 5), np.float32),
        "count": np.zeros(3, np.int32),
    }
    refuses(error, lambda: Rescorer().paths(*batch_of(3), 5, out=Drafts(**{**shapes, **change})), *message)
    fixed = np.zeros((3, 5), np.float32)
    fixed.flags.writeable = False
    refuses(TypeError, lambda: Rescorer().paths(*batch_of(3), 5, out=Drafts(**{**shapes, "cost": fixed})), "contiguous")


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
