"""Normalised lattices against enumeration and the searches; the distribution of samples."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.core_trees import prefixes
from support.oracle import Backoff, models, sausages, unigrams
from support.oracle_normalised import Enumerated, normalise, strings
from support.paths import ROOT
from support.problems import VOCAB, problems, temperatures
from support.refusals import refuses

from rescore import Rescorer, Sausage, _core
from rescore.decode.draft.normalised import dense_rows
from rescore.lm.model import example


@settings(max_examples=250)
@given(problems(), temperatures, st.booleans())
def test_equals_enumeration(problem, temperature, local):
    lms, batch, alphas, histories, _ = problem
    lattice = normalise(lms, batch, alphas, histories, temperature=temperature, local=local)
    every, drafts = strings(batch)
    rows, logq = lattice.rows(drafts), lattice.logq(drafts)
    for b, (sausage, history) in enumerate(zip(batch, histories)):
        slow = Enumerated(sausage, lms, alphas, history, temperature, local=local)
        wanted = {prefix: slow.row(prefix) for prefix in {s[:t] for s in every[b] for t in range(len(sausage))}}
        for i, string in enumerate(every[b]):
            assert abs(logq[b, i] - slow.logq[string]) <= slow.rounding
            for t in range(len(sausage)):
                row = wanted[string[:t]]
                assert np.abs(rows[b, i, t, : len(row)] - row).max() <= slow.rounding
                assert not rows[b, i, t, len(row) :].any()
            assert not rows[b, i, len(sausage) :].any()


@settings(max_examples=100)
@given(problems(), temperatures, st.booleans())
def test_a_uniform_draws_the_candidate_in_whose_interval_it_lies(problem, temperature, local):
    """The uniforms that draw a string are a box, a side for each slot; its volume is q of the string."""
    lms, batch, alphas, histories, _ = problem
    lattice = normalise(lms, batch, alphas, histories, temperature=temperature, local=local)
    every, drafts = strings(batch)
    rows = lattice.rows(drafts)
    for inside in (1e-6, 0.5, 1 - 1e-6):
        uniforms, wide = np.zeros(drafts.shape), np.zeros(drafts.shape[:2], bool)
        for b, sausage in enumerate(batch):
            slow = Enumerated(sausage, lms, alphas, histories[b], temperature, local=local)
            prefixes_of = {s[:t] for s in every[b] for t in range(len(sausage))}
            borders = {prefix: np.cumsum([0.0, *slow.row(prefix)]) for prefix in prefixes_of}
            for i, string in enumerate(every[b]):
                sides = [borders[string[:t]][[rank, rank + 1]] for t, rank in enumerate(string)]
                wide[b, i] = all(high - low > 1e-4 for low, high in sides)
                uniforms[b, i, : len(string)] = [low + inside * (high - low) for low, high in sides]
        uniforms = np.minimum(uniforms, np.nextafter(1, 0))
        tokens, q, logq, lengths = lattice.sample(uniforms, threads=2)
        assert np.array_equal(tokens[wide], drafts[wide]) and np.array_equal(q[wide], rows[wide])
        assert np.array_equal(logq, lattice.logq(tokens))
        assert (lengths == np.array([[len(sausage)] for sausage in batch])).all()


def test_worked_example(worked):
    """The figures of docs/how/pushing.md."""
    lm, sausage = worked
    lattice = Rescorer(lm, alpha=1.0).normalise(sausage, example.HISTORY)
    # Head probability times p of the model, slot by slot from the last: the mass of what may follow.
    after_lionel_messi = 0.6 * 0.9 + 0.3 * (0.25 * 0.5 * 0.4)
    after_messi = 0.6 * 0.6 + 0.3 * (0.5 * 0.4)
    after_ronaldo = 0.6 * 0.2 + 0.3 * 0.4
    after_lionel = 0.5 * (2 / 9 * 0.1) * after_ronaldo + 0.4 * 0.8 * after_lionel_messi
    after_cristiano = 0.5 * 0.8 * after_ronaldo + 0.4 * (2 / 9 * 0.1) * after_messi
    mass = 0.5 * 0.1 * after_lionel + 0.4 * 0.1 * after_cristiano
    draft = np.array([[example.LIONEL, example.MESSI, example.SCORED]], np.int32)
    rows = lattice.rows(draft)[0]
    assert rows[0] == pytest.approx([0.05 * after_lionel / mass, 0.04 * after_cristiano / mass], abs=1e-6)
    assert rows[1, 1] == pytest.approx(0.4 * 0.8 * after_lionel_messi / after_lionel, abs=1e-6)
    assert rows[2, 0] == pytest.approx(0.54 / after_lionel_messi, abs=1e-6)
    local = Rescorer(lm, alpha=1.0).normalise(sausage, example.HISTORY, local=True).rows(draft)[0]
    assert local[0] == pytest.approx([5 / 9, 4 / 9], abs=1e-6)
    page = (ROOT / "docs/how/pushing.md").read_text(encoding="utf-8")
    whole = rows[[0, 1, 2], [0, 1, 0]]
    for figure in (mass, after_lionel, after_cristiano, *whole, local[0, 0], local[1, 1], whole.prod()):
        assert f"{figure:.4f}" in page


@settings(max_examples=250)
@given(problems(), temperatures, st.booleans(), st.integers(1, 300))
def test_trees_equal_enumeration(problem, temperature, local, nodes):
    lms, batch, alphas, histories, _ = problem
    lattice = normalise(lms, batch, alphas, histories, temperature=temperature, local=local)
    every, _ = strings(batch)
    columns, larger = lattice.trees(nodes=nodes), lattice.trees(nodes=nodes + 1, threads=2)
    for b, sausage in enumerate(batch):
        found = prefixes(*(column[b] for column in columns))
        assert found == prefixes(*(column[b] for column in larger))[:nodes]
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


@settings(max_examples=60)
@given(
    models(VOCAB),
    sausages(VOCAB, most_slots=3).filter(bool),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.lists(st.integers(0, VOCAB - 1), max_size=3),
)
def test_equals_openfst(lm, sausage, alpha, history):
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


def test_prefixes_and_tokens_that_are_no_candidates(worked):
    lm, sausage = worked
    for local in (False, True):
        lattice = Rescorer(lm, alpha=1.0).normalise(sausage, example.HISTORY, local=local)
        whole = lattice.rows(np.array([[0, 1, 4]]))[0]
        prefix, stranger, late = lattice.rows(np.array([[0, -1, -1], [3, 1, 4], [0, 1, 2]]))
        assert np.array_equal(prefix[:2], whole[:2]) and not prefix[2:].any()
        assert np.array_equal(stranger[:1], whole[:1]) and not stranger[1:].any()
        assert np.array_equal(late, whole)
        logq = lattice.logq(np.array([[-1, -1, -1], [0, -1, -1], [3, 1, 4], [0, 1, 2]]))
        assert logq.tolist() == [0, pytest.approx(math.log(whole[0, 0]), abs=1e-12), -math.inf, -math.inf]
        shorter = normalise([], [[], [[(0, 1.0)]]], [], [[]] * 2, local=local)
        assert shorter.logq(np.array([[[0]], [[0]]], np.int32)).tolist() == [[-math.inf], [0]]


def test_impossible_candidates():
    """After token 0 the model allows nothing: no whole draft has it, and a local path that drew it ends there."""
    never, alpha = 2e6, [[10.0, 10.0]]  # together above 2^24 nats
    lm = Backoff(2, 2, {(): {0: 1.0, 1: 1.0}, (0,): {0: never, 1: never}}, {(): 0.0, (0,): 0.0})
    slot = [(0, 0.5), (1, 0.5)]
    uniforms = np.array([[[0.0, 0.0], [0.25, 0.75]]])
    pushed, local = (normalise([lm], [[slot, slot]], alpha, [[]], local=local) for local in (False, True))
    tokens, q, logq, lengths = pushed.sample(uniforms)
    assert tokens.tolist() == [[[1, 0], [1, 1]]] and q[0, 0] == pytest.approx(np.array([[0, 1], [0.5, 0.5]]))
    assert logq[0] == pytest.approx([math.log(0.5)] * 2) and lengths.tolist() == [[2, 2]]
    assert pushed.logq(np.array([[[0, 1]]], np.int32))[0, 0] == -math.inf
    assert not pushed.rows(np.array([[[0, 1]]], np.int32))[0, 0, 1].any()
    tokens, q, logq, lengths = local.sample(uniforms)
    assert tokens.tolist() == [[[0, -1], [0, -1]]] and q[0, 0] == pytest.approx(np.array([[0.5, 0.5], [0, 0]]))
    assert lengths.tolist() == [[1, 1]]
    dead = normalise([unigrams([never, never])], [[slot, slot]], alpha, [[]])
    tokens, q, logq, lengths = dead.sample(uniforms)
    assert (tokens == -1).all() and not q.any() and not lengths.any()
    assert not logq.any()
    assert normalise([unigrams([never, 1.0])], [[slot]], [[1.0]], [[]]).sample(np.zeros((1, 1, 1)))[0].tolist() == [
        [[1]]
    ]


def test_ln_q_beyond_float64_probabilities():
    lattice = normalise([], [[[(0, 0.0), (1, 900.0)]] * 2], [], [[]])
    assert lattice.logq(np.array([[[1, 1]]], np.int32))[0, 0] == -1800
    assert lattice.rows(np.array([[[1, 1]]], np.int32))[0, 0].tolist() == [[1, 0], [1, 0]]


def test_the_largest_uniform_draws_a_candidate_with_mass():
    lattice = normalise([], [[[(0, 0.0), (1, 0.1), (2, 0.2), (3, 800.0)]] * 8], [], [[]], local=True)
    tokens, *_ = lattice.sample(np.full((1, 1, 8), np.nextafter(1, 0)))
    assert (tokens == 2).all()


def test_the_arrays_are_copied():
    lm = unigrams([1.0, 2.0]).automaton()
    ids, cost = np.array([[[0, 1]]], np.int32), np.zeros((1, 1, 2), np.float32)
    histories, alpha = np.zeros((1, 0), np.int32), np.ones((1, 1))
    for local in (False, True):
        lattices = [_core.Normalised([lm], histories, one, cost, alpha, local=local) for one in (ids.copy(), ids)]
        ids[:] = 10**6
        rows, changed = (lattice.rows(np.array([[[1]]], np.int32)) for lattice in lattices)
        assert np.array_equal(changed, rows)
        ids[:] = 0, 1


def test_dense_rows(worked):
    lm, sausage = worked
    drafts = Rescorer(lm, alpha=1.0).normalise(sausage, example.HISTORY).sample(np.random.default_rng(0).random((4, 3)))
    rows = dense_rows(drafts.q, drafts.ids, 6)
    assert rows.shape == (4, 3, 6) and np.allclose(rows.sum(-1), 1)
    for t, slot in enumerate(example.IDS):
        assert np.array_equal(rows[:, t, slot], drafts.q[:, t])
    ragged = dense_rows(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([[2, 0], [1, -1]], np.int32), 3)
    assert ragged.tolist() == [[0.5, 0, 0.5], [0, 1, 0]]
    q = drafts.logq[:, None].repeat(3, 1)
    refuses(ValueError, lambda: dense_rows(q, drafts.ids, 6), "q", "[..., T, K]", "[T, K]", "[4, 3]", "[3, 2]")
    refuses(ValueError, lambda: dense_rows(drafts.q, drafts.ids, 4), "ids", "vocab_size", "4", "5")


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda r, s: r.normalise(s, [0], temperature=0), ValueError, ["temperature", "0.000001", "1000000"]),
        (lambda r, s: r.normalise(s, [0], temperature=math.nan), ValueError, ["temperature", "nan"]),
        (lambda r, s: r.normalise(s, [0]).trees(0), ValueError, ["nodes", "1", "4096"]),
        (lambda r, s: r.normalise(Sausage.batch([s]), [[0]]).tree(3), TypeError, ["tree", "batch", "[T, K]"]),
        (lambda r, s: r.normalise(s, [[0], [1]]), ValueError, ["history", "1"]),
        (lambda r, s: r.normalise(s, [0]).sample(np.zeros((1, 2))), ValueError, ["uniforms", "[1, p, 3]", "[1, 1, 2]"]),
        (lambda r, s: r.normalise(s, [0]).sample(np.zeros(3)), ValueError, ["uniforms", "[p, T]", "[3]"]),
        (
            lambda r, s: r.normalise(Sausage.batch([s]), [[0]]).sample(np.zeros((1, 3))),
            ValueError,
            ["uniforms", "[B, p, T]", "[1, 3]"],
        ),
        (lambda r, s: r.normalise(s, [0]).sample([[0, 0, 0], [0, 1, 0]]), ValueError, ["uniforms[0, 1, 1]", "1.0"]),
        (lambda r, s: r.normalise(s, [0]).sample([[0, math.nan, 0]]), ValueError, ["nan", "uniforms[0, 0, 1]"]),
        (lambda r, s: r.normalise(s, [0]).sample([[0, -0.5, 0]]), ValueError, ["uniforms[0, 0, 1]", "-0.5"]),
        (lambda r, s: r.normalise(s, [0]).rows([[0, -1, 4]]), ValueError, ["drafts[0, 0, 2]", "-1", "4"]),
        (lambda r, s: r.normalise(s, [0]).logq([[0, 1, -2]]), ValueError, ["drafts[0, 0, 2]", "-1", "-2"]),
        (lambda r, s: r.normalise(s, [0]).logq([[0.0, 1.0, 4.0]]), TypeError, ["drafts", "float64"]),
        (lambda r, s: r.normalise(s, [0]).logq([[0, 1, 2**32]]), ValueError, ["drafts", "0..2147483647", "4294967296"]),
    ],
)
def test_misuse(worked, call, error, message):
    lm, sausage = worked
    refuses(error, lambda: call(Rescorer(lm), sausage), *message)


def test_no_paths_and_no_lattices():
    lm = unigrams([1.0] * VOCAB)
    lattice = normalise([lm], [[[(0, 1.0)]]], [[1.0]], [[]])
    assert lattice.sample(np.zeros((1, 0, 1)))[1].shape == (1, 0, 1, 1)
    none = np.zeros((0, 2, 3), np.int32)
    empty = _core.Normalised([lm.automaton()], none[:, :0, 0], none, none.astype(np.float32), np.ones((1, 2)))
    assert empty.rows(np.zeros((0, 4, 2), np.int32)).shape == (0, 4, 2, 3)
