"""The best chain of a tree against all of its paths."""

import numpy as np
import pytest

from rescore.lattice.tree import TokenTree


def tree_of(parents, q):
    tree = TokenTree.from_parents(range(len(parents)), parents)
    return TokenTree.trusted(tree.tokens, tree.parents, tree.depths, np.log(np.array(q, np.float32)))


def nodes(tree, *args, **options):
    """A tree's tokens are its nodes."""
    return tree.best_chain(*args, **options).tokens.tolist()


# Two first tokens: 0.5 goes on to nothing, 0.4 to a long copy.
WORKED = tree_of([-1, -1, 1, 2, 3, 0], [0.5, 0.4, 0.36, 0.35, 0.3, 0.2])


def test_the_chain_with_the_greatest_expected_length():
    assert nodes(WORKED) == [1, 2, 3, 4]  # 1.41 tokens; behind the more probable first token 0.7


def test_tokens_below_their_cost_are_left_out():
    assert nodes(WORKED, 0.301) == [1, 2, 3]  # 0.099 + 0.059 + 0.049 against 0.199
    assert nodes(WORKED, 0.34) == [0]  # 0.16 against 0.06 + 0.02 + 0.01
    assert nodes(WORKED, 0.5) == []


def test_no_chain_is_longer_than_most():
    assert nodes(WORKED, most=1) == [0]
    assert nodes(WORKED, most=2) == [1, 2]
    assert nodes(WORKED, most=0) == []


def test_no_chain_of_an_empty_tree():
    assert nodes(TokenTree.from_parents([], [])) == []


@pytest.mark.parametrize("seed", range(30))
def test_no_path_is_worth_more(seed):
    draw = np.random.default_rng(seed)
    n, cost, most = int(draw.integers(1, 40)), float(draw.choice([0, 0.05, 0.2])), int(draw.integers(1, 9))
    parents = [-1, *(int(draw.integers(-1, node)) for node in range(1, n))]
    q: list[float] = []
    for parent in parents:
        q.append((q[parent] if parent >= 0 else 1.0) * draw.uniform(0.1, 1))
    tree = tree_of(parents, q)

    def worth(path):
        return sum(float(np.exp(np.float64(tree.logq[node]))) - cost for node in path)

    chain = nodes(tree, cost, most=most)
    assert chain == (tree.path_to(chain[-1]) if chain else [])
    paths = [tree.path_to(node) for node in range(n)]
    assert worth(chain) == pytest.approx(max([0.0, *(worth(path) for path in paths if len(path) <= most)]))
