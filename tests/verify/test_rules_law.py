"""Every rule emits the target's distribution: by enumeration, on exact grids of uniforms, and by a G-test."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.drafts import strings
from support.oracle_rules import Model, distance, drawn_trees, emitted, emitted_by_tree, expected_length, lengths

from rescore.decode.conformance.reference import g_statistic, upper_tail
from rescore.decode.verify.chain_rules import BlockVerification, GreedyBlockVerification, TokenVerification
from rescore.decode.verify.sampling import sample
from rescore.decode.verify.tree_rules import Matching, RecursiveRejection
from rescore.lattice.tree import TokenTree

CHAIN_RULES = TOKEN, BLOCK, GREEDY_BLOCK = TokenVerification(), BlockVerification(), GreedyBlockVerification()
EXACT = 1e-12


def models(seed: int, vocab: int, count: int = 2, zeros: float = 0.25) -> list[Model]:
    rng = np.random.default_rng(seed)
    return [Model(rng, vocab, zeros) for _ in range(count)]


class Ruled(Model):
    """A model by a rule: text -> distribution."""

    def __init__(self, vocab: int, row):
        super().__init__(np.random.default_rng(), vocab)
        self.row = row

    def __missing__(self, text):
        return np.array(self.row(text))


# The worked example of docs/how/verification.md.
TARGET, DRAFTER = Ruled(2, lambda _: [1 / 3, 2 / 3]), Ruled(2, lambda _: [2 / 3, 1 / 3])


BLOCKS = [(1, [2], 3), (2, [0], 1), (2, [1], 2), (2, [3], 4), (3, [2], 3), (3, [3], 4), (5, [2], 3)]
BLOCKS += [(2, [2, 2], 4), (2, [3, 1, 2], 4), (2, [3, 3], 5), (3, [2, 2], 4)]  # blocks upon blocks


@pytest.mark.parametrize("vocab, sizes, length", BLOCKS)
@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_blocks_then_the_target(rule, vocab, sizes, length):
    for seed in range(4 if len(sizes) == 1 else 3):
        target, *drafters = models(seed, vocab, 1 + len(sizes))
        assert distance(emitted(rule, target, list(zip(drafters, sizes)), length), target, length) <= EXACT


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_modifications_within_modifications(rule):
    """Without zeros and with three tokens, so that two old blocks claim the same position and neither leaves it one
    token only.
    """
    target, *drafters = models(2, 3, 3, zeros=0)
    assert distance(emitted(rule, target, list(zip(drafters, [3, 2])), 3), target, 3) <= EXACT


def test_without_the_modification_greedy_block_verification_is_wrong():
    """The paper's appendix C: P(ba) = 4/9 for 2/9, if the second token is drawn from the target after a rejection."""
    law = defaultdict(float)
    for draft, weight in DRAFTER.texts(2):
        found = GREEDY_BLOCK.law(TARGET.along((), draft, 3), DRAFTER.along((), draft, 2), draft)
        for n, mass in enumerate(lengths(GREEDY_BLOCK, found.acceptance)):
            for x, share in enumerate(found.next_token(n)):
                for rest, more in TARGET.texts(1):
                    law[(*draft[:n], x, *rest)[:2]] += weight * mass * share * more
    assert distance(law, TARGET, 2) > 0.1
    assert distance(emitted(GREEDY_BLOCK, TARGET, [(DRAFTER, 2)], 2), TARGET, 2) <= EXACT


@pytest.mark.parametrize("rule, accepted", [(TOKEN, 10 / 9), (BLOCK, 11 / 9), (GREEDY_BLOCK, 12 / 9)])
def test_worked_example(rule, accepted):
    assert expected_length(rule, TARGET, DRAFTER, 2) == pytest.approx(accepted, abs=EXACT)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), vocab=st.integers(1, 3), size=st.integers(0, 3))
def test_block_keeps_no_fewer_than_token_and_greedy_block_the_most(seed, vocab, size):
    target, drafter = models(seed, vocab)
    by_token, by_block, by_greedy = (expected_length(rule, target, drafter, size) for rule in CHAIN_RULES)
    assert by_token <= by_block + EXACT and by_block <= by_greedy + EXACT
    # No coupling of the two laws has a longer common prefix (the paper's lemma 8).
    ideal = sum(
        min(weight, dict(drafter.texts(i)).get(text, 0.0))
        for i in range(1, size + 1)
        for text, weight in target.texts(i)
    )
    assert by_greedy == pytest.approx(ideal, abs=EXACT)


TREES = [(2, [2]), (3, [3]), (4, [2]), (5, [2]), (3, [2, 1]), (2, [2, 2]), (2, [1, 2, 1])]


@pytest.mark.parametrize(
    "siblings, vocab, widths",
    [(s, *tree) for s in ("independent", "distinct") for tree in TREES] + [("independent", 1, [2, 2])],
)
def test_trees_of_samples(siblings, vocab, widths):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        # A row with fewer tokens than siblings has no sample without replacement.
        target, drafter = Model(rng, vocab), Model(rng, vocab, zeros=0 if siblings == "distinct" else 0.25)
        law = defaultdict(float)
        for weight, draws in drawn_trees(drafter, siblings, widths):
            for text, mass in emitted_by_tree(target, drafter, draws, siblings, len(widths) + 1).items():
                law[text] += weight * mass
        assert distance(law, target, len(widths) + 1) <= EXACT


@given(
    seed=st.integers(0, 2**32 - 1),
    draws=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple), max_size=6),
)
def test_any_fixed_tree(seed, draws):
    """Not only in the mean over trees: the law given the tree is the target's."""
    prefixes = list(dict.fromkeys(text[: i + 1] for text in draws for i in range(len(text))))
    target = models(seed, 3)[0]
    assert distance(emitted_by_tree(target, None, prefixes, "fixed", 4), target, 4) <= EXACT


def grid(points: int, dimensions: int):
    """The middles of equal cells: averages are exact where every border is a multiple of 1 / points."""
    middles = [(k + 0.5) / points for k in range(points)]
    return itertools.product(middles, repeat=dimensions)


@pytest.mark.parametrize("rule", CHAIN_RULES)
def test_verify_has_the_law_of_its_pieces(rule):
    """On the worked example, where all h and all borders are multiples of 1/12."""
    for draft, _ in DRAFTER.texts(2):
        asked = TARGET.along((), draft, 3), DRAFTER.along((), draft, 2), draft
        law, counts = rule.law(*asked), Counter()
        for u in grid(12, 3):
            verdict = rule.verdict(*asked, u)
            counts[verdict.length, verdict.token] += 1 / 12**3
        for n, mass in enumerate(lengths(rule, law.acceptance)):
            np.testing.assert_allclose([counts[n, x] for x in range(2)], mass * law.next_token(n), atol=EXACT)


QUARTERS = Ruled(3, lambda text: np.roll([0.5, 0.25, 0.25], sum(text) % 3))
DRAFTS = [[[0, 1], [1, 0]], [[2, -1], [0, 2]], [[1, 1], [1, 2]], [[0, -1], [1, -1]]]


def rows_of(model: Model, tree: TokenTree) -> np.ndarray:
    """[1+n, V]: the model after the root token and after each node."""
    return np.stack([model[text] for text in [(), *strings(tree)]])


@pytest.mark.parametrize(
    "rule, points, drafts",
    [
        *((Matching(), 4, drafts) for drafts in DRAFTS),
        *((RecursiveRejection("fixed"), 12, drafts) for drafts in DRAFTS[1:]),  # the first would take 12^5 points
    ],
)
def test_trees_on_a_grid(rule, points, drafts):
    tree = TokenTree.from_drafts(np.array(drafts))
    p, texts, depth = rows_of(QUARTERS, tree), strings(tree), int(tree.depths.max())
    numbers, law = 1 + (depth if isinstance(rule, Matching) else tree.size), defaultdict(float)
    for u in grid(points, numbers):
        verdict = rule.verdict(p, tree, u)
        text = (*(texts[verdict.accepted[-1]] if verdict.accepted else ()), verdict.token)
        for rest, mass in QUARTERS.texts(depth + 1 - len(text), text):
            law[text + rest] += mass / points**numbers
    assert distance(law, QUARTERS, depth + 1) <= EXACT


ROUNDS = 3000


@pytest.mark.parametrize("siblings", ["independent", "distinct", "fixed"])
def test_drawn_trees(siblings):
    (target, drafter), rng = models(12, 3, zeros=0), np.random.default_rng(13)
    counts, rule = Counter(), RecursiveRejection(siblings)

    def below(text):
        return [(*text, int(x)) for x in rng.choice(3, 2, replace=siblings != "distinct", p=drafter[text])]

    for _ in range(ROUNDS):
        draws = below(())
        draws += [longer for text in draws for longer in below(text)]
        tree = TokenTree.from_drafts(np.array([text + (-1,) * (2 - len(text)) for text in draws]))
        texts, q = strings(tree), None if siblings == "fixed" else rows_of(drafter, tree)
        order, uniforms = [texts.index(text) for text in draws], rng.random(len(draws) + 1)
        verdict = rule.verdict(rows_of(target, tree), tree, uniforms, q=q, draws=order)
        text = (*(texts[verdict.accepted[-1]] if verdict.accepted else ()), verdict.token)
        counts[(*text, int(sample(target[text], rng.random())))[:2]] += 1
    texts, means = zip(*((text, ROUNDS * weight) for text, weight in target.texts(2)))
    assert upper_tail(*g_statistic([counts[text] for text in texts], means)) > 1e-3
