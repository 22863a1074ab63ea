"""Verification rules: results on numpy and torch, walks by hand, edge cases; sampling against a slow twin; messages."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts import DRAFTS, longest, padded, strings
from support.refusals import refuses

from rescore import Sampling, greedy
from rescore.decode.verify import shaping
from rescore.decode.verify.chain_rules import BlockVerification, GreedyBlockVerification, TokenVerification
from rescore.decode.verify.draft import best_tokens
from rescore.decode.verify.modification import Modification, step
from rescore.decode.verify.rule import Verdict
from rescore.decode.verify.sampling import residual, sample, uniform
from rescore.decode.verify.shaping import INVALID, UNDECIDED, Drawing, shaped_probabilities
from rescore.decode.verify.tree_rules import Matching, RecursiveRejection, rejections
from rescore.lattice.tree import TokenTree

CHAIN_RULES = TOKEN, BLOCK, GREEDY_BLOCK = TokenVerification(), BlockVerification(), GreedyBlockVerification()
SEEDS = st.integers(0, 2**32 - 1)
FORK = TokenTree.from_drafts(np.array([[0, 1], [0, 2], [1, -1]]))  # nodes: 0, 0 1, 0 2, 1


def probs(rng, *shape: int) -> np.ndarray:
    return rng.dirichlet(np.ones(shape[-1]), shape[:-1])


def chain(seed: int, vocab: int = 6, size: int = 4):
    rng = np.random.default_rng(seed)
    q = probs(rng, size, vocab)
    return probs(rng, size + 1, vocab), q, [int(rng.choice(vocab, p=row)) for row in q], rng.random(size + 1)


# Greedy match and sample matching: walks over sets of texts.


@given(DRAFTS, SEEDS)
def test_greedy_follows_the_longest_true_path(drafts, seed):
    tree, truth = TokenTree.from_drafts(padded(drafts)), np.random.default_rng(seed).integers(0, 4, 6).tolist()
    texts = strings(tree)
    after = [truth[0]] + [truth[len(text)] if list(text) == truth[: len(text)] else 3 for text in texts]
    verdict = greedy.verify(np.array(after), tree)
    n = longest(texts, truth)
    assert verdict.length == n and verdict.token == truth[n]
    assert [texts[node] for node in verdict.accepted] == [tuple(truth[: i + 1]) for i in range(n)]


def test_greedy_without_a_draft():
    empty = TokenTree.from_drafts(np.empty((0, 2), np.int32))
    assert greedy.verify([4], empty) == Verdict(accepted=(), token=4)
    assert Matching().verdict(np.array([[0.25, 0.75]]), empty, [0.5]) == Verdict(accepted=(), token=1)
    assert RecursiveRejection("fixed").verdict(np.array([[0.25, 0.75]]), empty, [0.5]) == Verdict(accepted=(), token=1)


@given(SEEDS)
def test_matching_writes_what_sampling_without_drafts_writes(seed):
    rng = np.random.default_rng(seed)
    logits, seeds = rng.normal(size=(5, 4)), Sampling(seed=seed).seeds(0, 3)
    sampling = Sampling(temperature=0.8, top_p=0.95)
    verdict = Matching().verdict(sampling.distribution(logits), FORK, uniform(seeds))
    node, text = -1, []
    for position in range(verdict.length + 1):  # node 0 follows the root token: rows are 1 + node
        text.append(int(sampling.draw(logits[1 + node], seeds[position])))
        node = verdict.accepted[position] if position < verdict.length else node
    assert text == [*FORK.tokens[list(verdict.accepted)].tolist(), verdict.token]
    assert (node, verdict.token) not in set(zip(FORK.parents.tolist(), FORK.tokens.tolist()))


# Chains.


@given(SEEDS, st.integers(1, 6), st.integers(0, 4))
@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_torch_equals_numpy(rule, seed, vocab, size):
    p, q, draft, u = chain(seed, vocab, size)
    tensors = torch.from_numpy(p), torch.from_numpy(q), torch.tensor(draft, dtype=torch.int32)
    law, same = rule.law(p, q, draft), rule.law(*tensors)
    np.testing.assert_allclose(same.acceptance, law.acceptance, atol=1e-12)
    for n in range(size + 1):
        assert torch.is_tensor(same.next_token(n))
        np.testing.assert_allclose(same.next_token(n), law.next_token(n), atol=1e-9)  # small residuals are normalised
    verdict = rule.verdict(p, q, draft, u)
    assert rule.verdict(*tensors, torch.from_numpy(u)) == verdict
    assert all(type(x) is int for x in (*verdict.accepted, verdict.token))


@given(SEEDS)
@pytest.mark.parametrize("siblings", ["independent", "distinct", "fixed"])
def test_torch_equals_numpy_on_trees(siblings, seed):
    rng = np.random.default_rng(seed)
    p, q, u = probs(rng, 5, 4), None if siblings == "fixed" else probs(rng, 5, 4), rng.random(5)
    rule, own = RecursiveRejection(siblings), None if q is None else torch.from_numpy(q)
    assert rule.verdict(torch.from_numpy(p), FORK, u, q=own) == rule.verdict(p, FORK, u, q=q)
    assert Matching().verdict(torch.from_numpy(p), FORK, u[:3]) == Matching().verdict(p, FORK, u[:3])


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_float32_is_cast_up_and_made_exact(rule):
    """What a float32 softmax is off in its sum would otherwise be off in the law."""
    rng = np.random.default_rng(3)
    p, q = (torch.softmax(torch.from_numpy(rng.normal(size=(2 - i, 5))).float(), -1) for i in range(2))
    p, q = p * 1.0000004, q * 0.9999996
    emitted = torch.zeros(5, dtype=torch.float64)
    for x in range(5):
        law = rule.law(p, q, [x])
        drawn, h = q.double()[0, x] / q.double()[0].sum(), float(law.acceptance[0])
        emitted[x] += drawn * h
        emitted += drawn * (1 - h) * law.next_token(0)
        assert law.next_token(0).dtype == torch.float64
    np.testing.assert_allclose(emitted, p.double()[0] / p.double()[0].sum(), atol=1e-15)


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_edges_of_chains(rule):
    some = np.array([[0.25, 0.75]])
    # No draft: the target's own token.
    assert rule.verdict(some, np.empty((0, 2)), [], [0.5]) == Verdict(accepted=(), token=1)
    one = np.ones((3, 1))
    assert rule.verdict(one, one[:2], [0, 0], [0.9, 0.9, 0.9]) == Verdict(accepted=(0, 1), token=0)  # V = 1
    same = np.array([[0.3, 0.7, 0.0]] * 3)
    for u in (0.0, 1 - 2**-53):
        assert rule.verdict(same, same[:2], [1, 0], [u, u, u]).accepted == (0, 1)  # p = q is never rejected
    # A drafted token that the target cannot write is rejected by every number, 0 included; nor is one drawn.
    p, q = np.array([[0.0, 0.6, 0.4, 0.0]] * 2), np.array([[1.0, 0.0, 0.0, 0.0]])
    for u, expected in ((0.0, 1), (0.59, 1), (0.61, 2), (1 - 2**-53, 2)):
        assert rule.verdict(p, q, [0], [0.0, u]) == Verdict(accepted=(), token=expected)


def test_a_ratio_beyond_all_numbers_stays_finite():
    tiny = 1e-200
    p, q = np.array([[1.0, 0.0]] * 5), np.array([[tiny, 1.0]] * 4)
    law = GREEDY_BLOCK.law(p, q, [0, 0, 0, 0])
    assert np.isfinite(law.scale).all() and (law.acceptance == 1).all()
    assert GREEDY_BLOCK.verdict(p, q, [0, 0, 0, 0], [0.999] * 5) == Verdict(accepted=(0, 1, 2, 3), token=0)


def test_a_residual_without_mass_is_the_target():
    p = np.array([0.25, 0.75])
    assert residual(p, p).tolist() == [0.25, 0.75]
    assert residual(p, np.array([0.5, 0.5])).tolist() == [0.0, 1.0]


def test_sample_skips_what_has_no_weight():
    weights = np.array([0.0, 3.0, 0.0, 1.0, 0.0])
    assert [int(sample(weights, u)) for u in (0.0, 0.74, 0.75, 1 - 2**-53)] == [1, 1, 3, 3]
    rows = sample(torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double(), torch.tensor([0.5, 0.0]).double())
    assert rows.tolist() == [1, 1]


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=5))
def test_the_largest_number_stays_below_every_sum(weights):
    assert int(sample(np.array([*weights, 0.0]), 1 - 2**-53)) < len(weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_best_token_of_scores_that_are_none(dtype):
    rows = [[0.0, 2.0, 1.0], [math.nan, 2.0, 1.0], [math.inf, 0.0, 0.0], [-math.inf] * 3]
    assert best_tokens(torch.tensor(rows, dtype=dtype)).tolist() == [1, -1, -1, -1]


# Siblings.


def test_a_child_that_the_target_cannot_write_is_rejected_by_every_number():
    p = np.array([[0.0, 0.0, 1.0]] * 5)
    assert RecursiveRejection("fixed").verdict(p, FORK, [0.0] * 5) == Verdict(accepted=(), token=2)


def test_fixed_siblings_accept_as_often_as_matching():
    p, seen, reached = np.array([0.1, 0.2, 0.3, 0.4]), [], 1.0
    for h, _ in rejections(p, None, [3, 1, 0], "fixed"):
        seen.append(reached * h)
        reached *= 1 - h
    assert seen == pytest.approx([0.4, 0.2, 0.1])


def test_what_was_drawn_below_any_draw_of_a_node_is_the_nodes():
    """Draws 0, 0, then 1 below the first and 2 below the second: both are tested below the accepted node 0."""
    tree = TokenTree.from_drafts(np.array([[0, 1], [0, 2]]))
    p = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    q = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])  # leaves are not read
    verdict = RecursiveRejection("independent").verdict(p, tree, [0.5] * 5, q=q, draws=[0, 0, 1, 2])
    assert verdict == Verdict(accepted=(0, 2), token=1)


# Sampling.

LOGITS = st.lists(st.integers(-8, 8).map(lambda n: n / 2) | st.just(-math.inf), min_size=1, max_size=7).filter(
    lambda row: any(math.isfinite(z) for z in row)
)


def slow_distribution(row: list[float], sampling: Sampling) -> list[float]:
    """The definition, token by token."""
    best = max(row)
    probs = {w: math.exp((z - best) / sampling.temperature) for w, z in enumerate(row)}
    ranked = sorted(probs, key=lambda w: (-probs[w], -w))
    of_rank = [w for w in ranked if probs[w] >= probs[ranked[min(sampling.top_k or len(row), len(row)) - 1]]]
    total, mass, kept = sum(probs[w] for w in of_rank), 0.0, []
    for w in of_rank:
        if mass / total >= sampling.top_p:
            break
        kept.append(w)
        mass += probs[w]
    kept = [w for w in kept if probs[w] >= sampling.min_p]
    return [probs[w] / sum(probs[v] for v in kept) if w in kept else 0.0 for w in range(len(row))]


@settings(max_examples=100)
@given(
    row=LOGITS,
    top_k=st.integers(0, 8),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0, 1),
    temperature=st.floats(0.1, 3.0),
)
def test_distribution_equals_the_slow_twin(row, top_k, top_p, min_p, temperature):
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    got, expected = sampling.distribution(np.array(row)), np.array(slow_distribution(row, sampling))
    borders = np.cumsum(np.sort(slow_distribution(row, Sampling(temperature=temperature, top_k=top_k)))[::-1])
    ratios = np.exp((np.array(row) - max(row)) / temperature)
    if np.abs(borders - top_p).min() < 1e-9 or np.abs(ratios - min_p).min() < 1e-9 < min_p < 1:
        return  # rounding decides whether the token on the border stays
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300)


@settings(max_examples=100)
@given(row=LOGITS, seed=st.integers(0, 2**64 - 1), top_k=st.integers(0, 8))
def test_draw_inverts_the_cumulative_distribution(row, seed, top_k):
    sampling = Sampling(temperature=0.7, top_k=top_k)
    token, u = int(sampling.draw(np.array(row), np.uint64(seed))), float(uniform(np.uint64(seed)))
    probs = sampling.distribution(np.array(row))
    assert probs[token] > 0
    assert math.fsum(probs[:token]) <= u + 1e-12
    assert math.fsum(probs[: token + 1]) >= u - 1e-12


def test_a_position_owns_its_number():
    sampling = Sampling(seed=7)
    many = sampling.seeds(2, 1000)
    np.testing.assert_array_equal(sampling.seeds(2, 10), many[:10])
    assert not np.intersect1d(many, sampling.seeds(3, 1000)).size
    assert not np.intersect1d(many, Sampling(seed=8).seeds(2, 1000)).size
    numbers = uniform(many)
    assert 0 <= numbers.min() and numbers.max() < 1 and abs(numbers.mean() - 0.5) < 0.05
    assert uniform(np.array([0, 2**63, 2**64 - 1], np.uint64)).tolist() == [0.0, 0.5, 1 - 2.0**-53]


def test_the_stream_is_philox():
    """Philox4x64-10 written out, for key (7, 2): the first four numbers come from counter 1."""
    counter, key = [1, 0, 0, 0], [7, 2]
    for _ in range(10):
        high0, low0 = divmod(0xD2E7470EE14C6C93 * counter[0], 2**64)
        high1, low1 = divmod(0xCA5A826395121157 * counter[2], 2**64)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B97F4A7C15) % 2**64, (key[1] + 0xBB67AE8584CAA73B) % 2**64]
    assert Sampling(seed=7).seeds(2, 4).tolist() == counter


@pytest.mark.parametrize("nucleus", [2, 1024])
@pytest.mark.parametrize("min_p", [0.0, 0.3])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 1e-9])
@pytest.mark.parametrize("top_k", [0, 1, 5, 1000])
def test_distributions_of_tensors_are_those_of_arrays(top_k, top_p, min_p, nucleus, monkeypatch):
    """Also where top-p keeps more tokens than are looked at first; tokens drawn at once are those drawn one by one."""
    monkeypatch.setattr(shaping, "NUCLEUS", nucleus)
    monkeypatch.setattr(shaping, "ROWS", 4)
    logits = torch.randint(-3, 3, (9, 40), generator=torch.Generator().manual_seed(1)).float()  # many are equal
    logits[0, 0] = -torch.inf
    sampling = Sampling(temperature=0.7, top_k=top_k, top_p=top_p, min_p=min_p)
    of_tensors = shaped_probabilities(logits, sampling).numpy()
    np.testing.assert_allclose(of_tensors, sampling.distribution(logits), rtol=1e-12)
    seeds = sampling.seeds(0, len(logits))
    drawn = Drawing.of(sampling)(logits, torch.from_numpy(uniform(seeds))).numpy()
    decided = drawn != UNDECIDED
    assert drawn[decided].tolist() == sampling.draw(logits, seeds)[decided].tolist()
    assert decided.all() != (nucleus == 2 and top_k in (0, 1000) and 0.5 <= top_p < 1)
    logits[1, 3], logits[2, 0], logits[3] = torch.nan, torch.inf, -torch.inf
    assert Drawing.of(sampling)(logits, torch.from_numpy(uniform(seeds))).tolist()[1:4] == [INVALID] * 3


@pytest.mark.parametrize(
    ("temperature", "expected"), [(5e-324, [0, 1, 0]), (1e-300, [0, 1, 0]), (1e308, [0.5, 0.5, 0])]
)
def test_temperatures_near_the_ends_of_float64(temperature, expected):
    assert Sampling(temperature=temperature).distribution(np.array([1.0, 3.0, -np.inf])).tolist() == expected


# Messages.

IN_16_BITS = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1000))).bfloat16().softmax(-1)
P, Q = np.array([[0.5, 0.5]] * 3), np.array([[0.5, 0.5]] * 2)


def bad(array: np.ndarray, place, value) -> np.ndarray:
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (([[0.5, 0.5]], Q, [0, 1], [0] * 3), TypeError, ["p", "list"]),
        ((P.astype(int), Q, [0, 1], [0] * 3), TypeError, ["p", "int64"]),
        ((P[:2], Q, [0, 1], [0] * 3), ValueError, ["p", "[3, V]", "[2, 2]"]),
        ((P[:, :0], Q, [0, 1], [0] * 3), ValueError, ["p", "[3, V]", "[3, 0]"]),
        ((P, Q[:, :1], [0, 1], [0] * 3), ValueError, ["q", "[2, 2]", "[2, 1]"]),
        ((P, torch.from_numpy(Q), [0, 1], [0] * 3), TypeError, ["q"]),
        ((bad(P, (1, 0), np.nan), Q, [0, 1], [0] * 3), ValueError, ["NaN", "p[1]", "1e-06"]),
        ((P, bad(Q, (1, 0), 0.4), [0, 1], [0] * 3), ValueError, ["sum", "q[1]", "1e-06", "0.9"]),
        ((bad(P, 2, [-0.5, 1.5]), Q, [0, 1], [0] * 3), ValueError, ["p[2, 0]", "-0.5"]),
        ((P, bad(Q, 1, [1.0, 0.0]), [0, 1], [0] * 3), ValueError, ["q[1, 1] = 0", "draft[1] = 1"]),
        ((P, Q, [0, 2], [0] * 3), ValueError, ["draft[1]", "0", "2"]),
        ((P, Q, [0, -1], [0] * 3), ValueError, ["draft[1]", "0", "2", "-1"]),
        ((P, Q, [0, 1.0], [0] * 3), TypeError, ["draft[1]", "1.0"]),
        ((P, Q, [0, 1], [0] * 2), ValueError, ["uniforms", "3", "2"]),
        ((P, Q, [0, 1], [0, 1.0, 0]), ValueError, ["uniforms[1]", "1.0"]),
        ((P, Q, [0, 1], [0, -0.1, 0]), ValueError, ["uniforms[1]", "-0.1"]),
        ((P, Q, [0, 1], [0, np.nan, 0]), ValueError, ["nan", "uniforms[1]", "0"]),
        ((IN_16_BITS, torch.empty(0, 1000), [], [0.5]), ValueError, ["p[0]", "1", "float32", "float64"]),
    ],
)
@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_messages_of_chains(rule, arguments, error, message):
    refuses(error, lambda: rule.verdict(*arguments), *message)


TREE_P = np.full((5, 4), 0.25)
SAMPLING = Sampling()
ASKED = Modification(ratio=1.0, left=1, prefix=(7, 8), drafter=lambda text: np.array([0.5, 0.25]))


def rejected(siblings: str, **options) -> Verdict:
    return RecursiveRejection(siblings).verdict(TREE_P, FORK, [0.999] * 5, **options)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: rejected("greedy"), ValueError, ["siblings", "'independent'", "'distinct'", "'fixed'", "'greedy'"]),
        (lambda: rejected("distinct"), ValueError, ["q", "[1 + n, V]"]),
        (lambda: rejected("fixed", q=TREE_P), ValueError, ["q"]),
        (lambda: rejected("fixed", draws=[0, 1, 3]), ValueError, ["draws", "2"]),
        (lambda: rejected("fixed", draws=[0, 1, 2, 4]), ValueError, ["draws[3]", "0", "4"]),
        (lambda: rejected("independent", q=bad(TREE_P, 0, [0, 0, 1, 0])), ValueError, ["0", "-1"]),
        (lambda: rejected("distinct", q=bad(TREE_P, 0, [1, 0, 0, 0])), ValueError, ["-1", "0"]),
        (lambda: rejected("independent", q=bad(TREE_P, 0, 0.5)), ValueError, ["sum", "q[0]", "1e-06", "2"]),
        (lambda: rejected("independent", q=TREE_P[:4]), ValueError, ["q", "[5, 4]", "[4, 4]"]),
        (lambda: greedy.verify([0] * 4, FORK), ValueError, ["truth", "1", "5", "4"]),
        (lambda: greedy.verify(np.zeros(5), FORK), TypeError, ["truth[0]", "0.0"]),
        (lambda: Matching().verdict(TREE_P, FORK, [0.5] * 5), ValueError, ["uniforms", "3", "5"]),
        (lambda: Matching().verdict(bad(TREE_P, 1, 0.5), FORK, [0.1] * 3), ValueError, ["sum", "p[1]", "1e-06", "2"]),
        (lambda: replace(ASKED, ratio=np.inf), ValueError, ["ratio", "inf", "0"]),
        (lambda: replace(ASKED, left=0), ValueError, ["left", "1", "0"]),
        (lambda: step((ASKED,), P[0]), ValueError, ["sum", "drafter((7", "8))[0]", "1e-06", "0.75"]),
        (lambda: step((ASKED,), np.full(3, 1 / 3)), ValueError, ["drafter((7", "8", "[1, 3]", "[1, 2]"]),
        (lambda: Sampling(temperature=0.0), ValueError, ["temperature", "0.0"]),
        (lambda: Sampling(temperature=math.nan), ValueError, ["temperature", "nan", "0"]),
        (lambda: Sampling(temperature="1"), TypeError, ["temperature", "numbers"]),
        (lambda: Sampling(top_k=-1), ValueError, ["top_k", "0", "-1"]),
        (lambda: Sampling(top_p=0.0), ValueError, ["top_p", "1]", "0.0"]),
        (lambda: Sampling(top_p=1.5), ValueError, ["top_p", "0", "1]", "1.5"]),
        (lambda: Sampling(min_p=1.5), ValueError, ["min_p", "0", "1]", "1.5"]),
        (lambda: Sampling(seed=-3), ValueError, ["seed", "0", "-3"]),
        (lambda: Sampling(seed=True), TypeError, ["seed", "True"]),
        (lambda: SAMPLING.seeds(-1, 4), ValueError, ["sequence", "0", "-1"]),
        (lambda: SAMPLING.distribution(np.array([0.0, math.nan])), ValueError, ["logits", "-inf"]),
        (lambda: SAMPLING.distribution(np.array([0.0, math.inf])), ValueError, ["logits", "-inf"]),
        (lambda: SAMPLING.distribution(np.array([-math.inf] * 2)), ValueError, ["logits", "-inf"]),
        (lambda: SAMPLING.draw(np.zeros((2, 4)), np.zeros(3, np.uint64)), ValueError, ["seeds", "[2]", "[3]"]),
        (lambda: SAMPLING.draw(np.zeros(4), np.array(0.5)), TypeError, ["seeds", "float64", "uint64"]),
    ],
)
def test_messages(call, error, message):
    refuses(error, call, *message)
