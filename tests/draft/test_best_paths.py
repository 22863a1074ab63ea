"""Searches of lattices against the enumeration of all paths and prefixes: the p best paths, best-first trees, and q of
whole drafts, also against OpenFst; the distribution of samples.
"""

import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.core_trees import prefixes
from support.oracle_normalised import Enumerated, normalise, strings
from support.paths import ROOT
from support.problems import VOCAB, problems, temperatures
from support.refusals import refuses

from rescore import Rescorer, Sausage, _core
from rescore.decode.draft.normalised import dense_rows
from rescore.lm.model import example


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
        of_ranks = partial(oracle.failure_cost, sausage, lms=lms, alphas=alphas, histories=[tuple(history)] * len(lms))
        ranked = oracle.best_strings(sausage, paths, of_ranks)
        out.append([(np.float32(cost / oracle.FIXED_ONE), tokens) for cost, tokens in ranked])
    return out


@settings(max_examples=100)
@given(problems(), st.integers(1, 3))
def test_failure_semantics_equals_enumeration(problem, threads):
    assert search(*problem, threads=threads) == expected(problem)


@settings(max_examples=100)
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
    assert count[0] == 1024 == len(np.unique(tokens[0], axis=0)) and (np.diff(path_cost[0]) >= 0).all()
    best = (cost[0] + unigram.astype(np.float32)[ids[0]]).min(axis=1).astype(float).sum()
    assert path_cost[0, 0] == pytest.approx(best, rel=1e-5)


def test_threads_of_python_share_the_pool():
    """Calls at the same time, each on several threads, answer as enumeration does; so does a forked process."""
    # A bigram model whose 24 contexts have arcs for 548 or 549 of 640 tokens: lists that are kept as bits.
    draw = np.random.default_rng(1)
    arcs = {(): dict(enumerate(draw.random(640).tolist()))}
    arcs |= {(t,): {u: float(np.float32(draw.random())) for u in range(640) if u % 7 != t % 7} for t in range(24)}
    lm = oracle.Backoff(640, 2, arcs, dict.fromkeys(arcs, 0.5))
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


def trees(rescorer: Rescorer, batch, histories, nodes) -> list[list[tuple[float, int, tuple[int, ...]]]]:
    ids, cost = oracle.padded(batch)
    found = rescorer.trees(Sausage(ids=ids, cost=cost), oracle.padded_histories(histories), nodes)
    columns = [getattr(found, name) for name in ("tokens", "parents", "depths", "logq", "count")]
    return [prefixes(*(column[b] for column in columns)) for b in range(len(batch))]


@settings(max_examples=100)
@given(problems(most_models=1), st.booleans(), st.integers(1, 512), st.integers(1, 3))
def test_trees_equal_enumeration(problem, alone, nodes, threads):
    """alone: of the heads, without the model."""
    (lm,), batch, alphas, histories, _ = problem
    rescorer = Rescorer(threads=threads) if alone else Rescorer(lm.ngram(), alpha=alphas, threads=threads)
    lms = [] if alone else [lm]
    for own, sausage, history in zip(trees(rescorer, batch, histories, nodes), batch, histories):
        every = oracle.best_prefixes(sausage, sys.maxsize, lms, alphas, [tuple(history)] * len(lms))
        logq = {tokens: -cost / oracle.FIXED_ONE for cost, _, tokens in every}
        assert len(own) == min(nodes, len(every)) and len({tokens for *_, tokens in own}) == len(own)
        for (found, _, tokens), (best, *_) in zip(own, every):
            rounding = 1e-8 + 1e-7 * abs(found)
            assert abs(found - logq[tokens]) <= rounding
            assert abs(logq[tokens] + best / oracle.FIXED_ONE) <= rounding  # as probable as the one in its place


def test_equally_probable_prefixes_come_by_depth_then_by_ranks():
    sausage = [[(5, 1.0), (2, 1.0), (4, 1.0)], [(3, 0.0)], [(6, 1.0), (1, 1.0)]]
    (found,) = trees(Rescorer(), [sausage], [[]], 9)
    of_first = [(token,) for token in (5, 2, 4)] + [(token, 3) for token in (5, 2, 4)]
    assert [tokens for *_, tokens in found] == [*of_first, (5, 3, 6), (5, 3, 1), (2, 3, 6)]


def test_nothing_is_left_of_the_lattice_before():
    """A lattice without candidates has no tree; nothing is read by the tokens of a larger model, which sanitizers would
    see.
    """
    large, small = (Rescorer(oracle.unigrams([1.0] * size).ngram(), alpha=1.0) for size in (5000, VOCAB))
    assert len(trees(large, [[[(4999, 1.0)]]], [[]], 4)[0]) == 1
    ids, cost = np.full((5, 1, 1), -1, np.int32), np.full((5, 1, 1), np.inf, np.float32)
    ids[2], cost[2] = 3, 1
    found = small.trees(Sausage(ids=ids, cost=cost), np.full((5, 4), -1, np.int32), 4)
    assert found.count.tolist() == [0, 0, 1, 0, 0]


# q of whole drafts.

ONE, PLAIN = example.sausage(), Rescorer(example.model(), alpha=1.0)
PUSHED = PLAIN.normalise(ONE, example.HISTORY)


def enumerated(problem, temperature):
    """The lattices of a problem; for each the sausage, its paths and the slow q; the paths as drafts."""
    lms, batch, alphas, histories, _ = problem
    lattice = normalise(lms, batch, alphas, histories, temperature=temperature)
    every, drafts = strings(batch)
    slow = [Enumerated(one, lms, alphas, own, temperature) for one, own in zip(batch, histories)]
    return lattice, list(zip(batch, every, slow)), drafts


@settings(max_examples=100)
@given(problems(), temperatures)
def test_q_equals_enumeration(problem, temperature):
    lattice, lattices, drafts = enumerated(problem, temperature)
    rows, logq = lattice.rows(drafts), lattice.logq(drafts)
    for b, (sausage, every, slow) in enumerate(lattices):
        wanted = {prefix: slow.row(prefix) for prefix in {s[:t] for s in every for t in range(len(sausage))}}
        for i, string in enumerate(every):
            assert abs(logq[b, i] - slow.logq[string]) <= slow.rounding
            for t in range(len(sausage)):
                row = wanted[string[:t]]
                assert np.abs(rows[b, i, t, : len(row)] - row).max() <= slow.rounding
                assert not rows[b, i, t, len(row) :].any()
            assert not rows[b, i, len(sausage) :].any()


@settings(max_examples=100)
@given(problems(), temperatures)
def test_a_uniform_draws_the_candidate_in_whose_interval_it_lies(problem, temperature):
    """The uniforms that draw a string are a box, a side for each slot; its volume is q of the string."""
    lattice, lattices, drafts = enumerated(problem, temperature)
    rows = lattice.rows(drafts)
    for inside in (1e-6, 0.5, 1 - 1e-6):
        uniforms, wide = np.zeros(drafts.shape), np.zeros(drafts.shape[:2], bool)
        for b, (sausage, every, slow) in enumerate(lattices):
            prefixes_of = {s[:t] for s in every for t in range(len(sausage))}
            borders = {prefix: np.cumsum([0.0, *slow.row(prefix)]) for prefix in prefixes_of}
            for i, string in enumerate(every):
                sides = [borders[string[:t]][[rank, rank + 1]] for t, rank in enumerate(string)]
                wide[b, i] = all(high - low > 1e-4 for low, high in sides)
                uniforms[b, i, : len(string)] = [low + inside * (high - low) for low, high in sides]
        uniforms = np.minimum(uniforms, np.nextafter(1, 0))
        tokens, q, logq, lengths = lattice.sample(uniforms, threads=2)
        assert np.array_equal(tokens[wide], drafts[wide]) and np.array_equal(q[wide], rows[wide])
        assert np.array_equal(logq, lattice.logq(tokens))
        assert (lengths == np.array([[len(sausage)] for sausage, *_ in lattices])).all()


def test_a_worked_example_of_q():
    """The figures of docs/how/pushing.md."""
    # Head probability times p of the model, slot by slot from the last: the mass of what may follow.
    after_lionel_messi = 0.6 * 0.9 + 0.3 * (0.25 * 0.5 * 0.4)
    after_messi = 0.6 * 0.6 + 0.3 * (0.5 * 0.4)
    after_ronaldo = 0.6 * 0.2 + 0.3 * 0.4
    after_lionel = 0.5 * (2 / 9 * 0.1) * after_ronaldo + 0.4 * 0.8 * after_lionel_messi
    after_cristiano = 0.5 * 0.8 * after_ronaldo + 0.4 * (2 / 9 * 0.1) * after_messi
    mass = 0.5 * 0.1 * after_lionel + 0.4 * 0.1 * after_cristiano
    draft = np.array([[example.LIONEL, example.MESSI, example.SCORED]], np.int32)
    rows, tree = PUSHED.rows(draft)[0], PLAIN.tree(ONE, example.HISTORY, 2)
    assert rows[0] == pytest.approx([0.05 * after_lionel / mass, 0.04 * after_cristiano / mass], abs=1e-6)
    assert rows[1, 1] == pytest.approx(0.4 * 0.8 * after_lionel_messi / after_lionel, abs=1e-6)
    assert rows[2, 0] == pytest.approx(0.54 / after_lionel_messi, abs=1e-6)
    local = math.exp(tree.logq[0]), math.exp(tree.logq[1] - tree.logq[0])
    assert local[0] == pytest.approx(5 / 9, abs=1e-6)
    page = (ROOT / "docs/how/pushing.md").read_text(encoding="utf-8")
    whole = rows[[0, 1, 2], [0, 1, 0]]
    for figure in (mass, after_lionel, after_cristiano, *whole, *local, whole.prod()):
        assert f"{figure:.4f}" in page


@settings(max_examples=100)
@given(problems(), temperatures, st.integers(1, 300))
def test_trees_of_whole_drafts_equal_enumeration(problem, temperature, nodes):
    lattice, lattices, _ = enumerated(problem, temperature)
    columns, larger = lattice.trees(nodes=nodes), lattice.trees(nodes=nodes + 1, threads=2)
    for b, (sausage, every, slow) in enumerate(lattices):
        found = prefixes(*(column[b] for column in columns))
        assert found == prefixes(*(column[b] for column in larger))[:nodes]
        ranks = {string[:t] for string in every for t in range(1, len(string) + 1)}
        mass = {
            tuple(sausage[t][rank][0] for t, rank in enumerate(prefix)): slow.log_mass_of(prefix) for prefix in ranks
        }
        assert len(found) == min(nodes, len(mass)) and len({tokens for *_, tokens in found}) == len(found)
        rounding = slow.rounding + len(sausage) * 2.0**-32  # of the sums, and of every step to a multiple of 2^-32 nats
        for (logq, _, tokens), best in zip(found, sorted(mass.values(), reverse=True)):
            assert abs(mass[tokens] - best) <= 2 * rounding  # as probable as the one enumerated in its place
            assert abs(logq - mass[tokens]) <= rounding + 1e-6 * abs(best)


@settings(max_examples=60)
@given(
    oracle.models(VOCAB),
    oracle.sausages(VOCAB, most_slots=3).filter(bool),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(st.integers(0, VOCAB - 1), max_size=3),
)
def test_q_equals_openfst(lm, sausage, alpha, history):
    """OpenFst composes the sausage with the model, every token an arc of every state, weights rounded as ours, and
    pushes it in the log semiring.
    """
    pywrapfst = pytest.importorskip("pywrapfst", reason="OpenFst's Python binding (pynini) is absent")
    from support.log_fsts import exact, log_model, log_sausage

    pushed = pywrapfst.push(
        pywrapfst.compose(log_sausage(sausage), log_model(lm, alpha, history)),
        push_weights=True,
        remove_total_weight=True,
        delta=1e-15,
    )
    every, drafts = strings([sausage])
    rows = normalise([lm], [sausage], [[alpha] * len(sausage)], [history]).rows(drafts)[0]
    for i, string in enumerate(every[0]):
        state = pushed.start()
        for t, rank in enumerate(string):
            arcs = {arc.ilabel - 1: (exact(arc.weight), arc.nextstate) for arc in pushed.arcs(state)}
            wanted = [math.exp(-arcs[token][0]) for token, _ in sausage[t]]
            assert rows[i, t, : len(wanted)] == pytest.approx(wanted, abs=1e-12)
            state = arcs[sausage[t][rank][0]][1]


def test_prefixes_and_tokens_that_are_no_candidates():
    whole = PUSHED.rows(np.array([[0, 1, 4]]))[0]
    prefix, stranger, late = PUSHED.rows(np.array([[0, -1, -1], [3, 1, 4], [0, 1, 2]]))
    assert np.array_equal(prefix[:2], whole[:2]) and not prefix[2:].any()
    assert np.array_equal(stranger[:1], whole[:1]) and not stranger[1:].any()
    assert np.array_equal(late, whole)
    logq = PUSHED.logq(np.array([[-1, -1, -1], [0, -1, -1], [3, 1, 4], [0, 1, 2]]))
    assert logq.tolist() == [0, pytest.approx(math.log(whole[0, 0]), abs=1e-12), -math.inf, -math.inf]
    shorter = normalise([], [[], [[(0, 1.0)]]], [], [[]] * 2)
    assert shorter.logq(np.array([[[0]], [[0]]], np.int32)).tolist() == [[-math.inf], [0]]


def test_impossible_candidates():
    """After token 0 the model allows nothing: no whole draft has it."""
    never, alpha = 2e6, [[10.0, 10.0]]  # together above 2^24 nats
    lm = oracle.Backoff(2, 2, {(): {0: 1.0, 1: 1.0}, (0,): {0: never, 1: never}}, {(): 0.0, (0,): 0.0})
    slot = [(0, 0.5), (1, 0.5)]
    uniforms = np.array([[[0.0, 0.0], [0.25, 0.75]]])
    pushed = normalise([lm], [[slot, slot]], alpha, [[]])
    tokens, q, logq, lengths = pushed.sample(uniforms)
    assert tokens.tolist() == [[[1, 0], [1, 1]]] and q[0, 0] == pytest.approx(np.array([[0, 1], [0.5, 0.5]]))
    assert logq[0] == pytest.approx([math.log(0.5)] * 2) and lengths.tolist() == [[2, 2]]
    assert pushed.logq(np.array([[[0, 1]]], np.int32))[0, 0] == -math.inf
    assert not pushed.rows(np.array([[[0, 1]]], np.int32))[0, 0, 1].any()
    dead = normalise([oracle.unigrams([never, never])], [[slot, slot]], alpha, [[]])
    tokens, q, logq, lengths = dead.sample(uniforms)
    assert (tokens == -1).all() and not any(one.any() for one in (q, logq, lengths))
    one_alive = normalise([oracle.unigrams([never, 1.0])], [[slot]], [[1.0]], [[]])
    assert one_alive.sample(np.zeros((1, 1, 1)))[0].tolist() == [[[1]]]


def test_ln_q_beyond_float64_probabilities():
    lattice = normalise([], [[[(0, 0.0), (1, 900.0)]] * 2], [], [[]])
    assert lattice.logq(np.array([[[1, 1]]], np.int32))[0, 0] == -1800
    assert lattice.rows(np.array([[[1, 1]]], np.int32))[0, 0].tolist() == [[1, 0], [1, 0]]


def test_the_largest_uniform_draws_a_candidate_with_mass():
    lattice = normalise([], [[[(0, 0.0), (1, 0.1), (2, 0.2), (3, 800.0)]] * 8], [], [[]])
    tokens, *_ = lattice.sample(np.full((1, 1, 8), np.nextafter(1, 0)))
    assert (tokens == 2).all()


def test_the_arrays_are_copied():
    ids, drafts = np.array([[[0, 1]]], np.int32), np.array([[[1]]], np.int32)
    arrays = np.zeros((1, 0), np.int32), ids, np.zeros((1, 1, 2), np.float32), np.ones((1, 1))
    lattice = _core.Normalised([oracle.unigrams([1.0, 2.0]).automaton()], *arrays)
    rows = lattice.rows(drafts)
    ids[:] = 10**6
    assert np.array_equal(lattice.rows(drafts), rows)


def test_dense_rows():
    drafts = PUSHED.sample(np.random.default_rng(0).random((4, 3)))
    rows = dense_rows(drafts.q, drafts.ids, 6)
    assert rows.shape == (4, 3, 6) and np.allclose(rows.sum(-1), 1)
    for t, slot in enumerate(example.IDS):
        assert np.array_equal(rows[:, t, slot], drafts.q[:, t])
    ragged = dense_rows(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[2, 0], [1, -1]], np.int32), 3)
    assert ragged.tolist() == [[0.5, 0, 0.5], [0, 1, 0]]
    q = drafts.logq[:, None].repeat(3, 1)
    refuses(ValueError, lambda: dense_rows(q, drafts.ids, 6), "q", "[..., T, K]", "[T, K]", "[4, 3]", "[3, 2]")
    refuses(ValueError, lambda: dense_rows(drafts.q, drafts.ids, 4), "ids", "vocab_size", "4", "5")


def test_no_paths_and_no_lattices():
    lm = oracle.unigrams([1.0] * VOCAB)
    lattice = normalise([lm], [[[(0, 1.0)]]], [[1.0]], [[]])
    assert lattice.sample(np.zeros((1, 0, 1)))[1].shape == (1, 0, 1, 1)
    none = np.zeros((0, 2, 3), np.int32)
    empty = _core.Normalised([lm.automaton()], none[:, :0, 0], none, none.astype(np.float32), np.ones((1, 2)))
    assert empty.rows(np.zeros((0, 4, 2), np.int32)).shape == (0, 4, 2, 3)
