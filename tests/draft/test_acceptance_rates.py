"""Acceptance learned by what q says."""

import math
from bisect import bisect_right

import numpy as np
import pytest
from support.drafts import tree_of
from support.refusals import refused, refuses

from rescore import _core
from rescore.decode.draft.pace import CREDIT, DECAY, EDGES, AcceptanceRates


def corrected(rates, tree):
    return rates.corrected(tree.logq, tree.parents)


TREE = tree_of([-1, 0, -1, 1], [0.55, 0.87, 0.25, 0.9999])


def test_what_was_learned_fades():
    rates = AcceptanceRates()
    before = corrected(rates, TREE)
    for _ in range(100):
        rates.note([TREE], [[]])
    half = round(np.log(0.5) / np.log(DECAY))
    for _ in range(half):
        rates.fade()
    overall = CREDIT / (CREDIT + 50 * (0.55 + 0.25))
    assert corrected(rates, TREE)[0] == pytest.approx(0.55 * CREDIT * overall / (CREDIT + 50 * 0.55))
    for _ in range(20 * half):
        rates.fade()
    assert corrected(rates, TREE) == pytest.approx(before, rel=1e-3)


def conditional_q(tree, node):
    parent = int(tree.parents[node])
    return math.exp(float(tree.logq[node]) - (float(tree.logq[parent]) if parent >= 0 else 0.0))


def random_tree(rng, n):
    parents = [int(rng.integers(-1, node)) if node else -1 for node in range(n)]
    return tree_of(parents, rng.choice([0.005, 0.15, 0.5, 0.93, 0.9997], size=n))


def test_equal_to_a_count_node_by_node():
    rng = np.random.default_rng(3)
    rates, counted = AcceptanceRates(), [[0.0, 0.0] for _ in range(len(EDGES) + 1)]

    def entry(tree, node):
        return counted[bisect_right(EDGES.tolist(), conditional_q(tree, node))]

    for _ in range(30):
        trees, paths = [random_tree(rng, int(rng.integers(0, 40))) for _ in range(3)], []
        for tree in trees:
            path, node = [], -1
            while (children := np.flatnonzero(tree.parents == node)).size and rng.random() < 0.8:
                node = int(rng.choice(children))
                path.append(node)
            paths.append(path)
        rates.note(trees, paths)
        for tree, path in zip(trees, paths):
            for node in range(tree.size):
                if tree.parents[node] in (-1, *path):
                    entry(tree, node)[1] += conditional_q(tree, node)
                    entry(tree, node)[0] += node in path
        overall = (sum(one[0] for one in counted) + CREDIT) / (sum(one[1] for one in counted) + CREDIT)
        for tree in trees:
            wanted: list[float] = []
            for node in range(tree.size):
                accepted, expected = entry(tree, node)
                above = int(tree.parents[node])
                p = min(1.0, conditional_q(tree, node) * (accepted + CREDIT * overall) / (expected + CREDIT))
                wanted.append(p * (wanted[above] if above >= 0 else 1.0))
            assert corrected(rates, tree) == pytest.approx(wanted, rel=1e-6)
        most = max(tree.size for tree in trees)  # all at once, with padding
        logq, parents = np.full((3, most), -np.inf, np.float32), np.full((3, most), -1, np.int32)
        for row, tree in enumerate(trees):
            logq[row, : tree.size], parents[row, : tree.size] = tree.logq, tree.parents
        for p, tree in zip(rates.corrected(logq, parents), trees):
            assert p.tolist() == [*corrected(rates, tree).tolist(), *[0.0] * (most - tree.size)]


def test_the_core_checks_its_arrays():
    factors, columns = np.ones(len(EDGES) + 1), (TREE.logq[None], TREE.parents[None])
    refuses(ValueError, lambda: _core.acceptance(columns[0], columns[1] + 3, EDGES, factors), "parents")
    refuses(ValueError, lambda: _core.acceptance(*columns, EDGES, factors[:3]), len(EDGES) + 1, "3")
    counts = np.ones((2, len(factors)))
    for wrong in ([[4]], [[-1]], [[0], [0]]):
        with refused(ValueError, "accepted"):
            _core.count_accepted(counts, EDGES, [TREE.logq], [TREE.parents], wrong)
    assert (counts == 1).all()
