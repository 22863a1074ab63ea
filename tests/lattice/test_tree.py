"""Token trees: merging, masks, positions and acceptance, against walks over sets of prefixes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drafts import DRAFTS, longest, padded, strings, tree_of
from support.refusals import refused, refuses

from rescore import _core
from rescore.lattice.tree import TokenTree, Trees, accepted_by_size


def prefixes(drafts: list[list[int]]) -> list[tuple[int, ...]]:
    """Distinct prefixes in order of first appearance."""
    return list(dict.fromkeys(tuple(draft[: i + 1]) for draft in drafts for i in range(len(draft))))


@given(DRAFTS)
def test_merging_keeps_every_prefix_once_in_order(drafts):
    tree = TokenTree.from_drafts(padded(drafts))
    assert strings(tree) == prefixes(drafts)
    assert tree.depths.tolist() == [len(s) for s in strings(tree)]
    paths = [tree.tokens[tree.path_to(leaf)].tolist() for leaf in tree.leaves()]
    again = TokenTree.from_drafts(padded(paths))
    assert set(strings(again)) == set(strings(tree))


@given(DRAFTS)
def test_the_mask_is_the_prefix_relation(drafts):
    tree = TokenTree.from_drafts(padded(drafts))
    all_strings = strings(tree)
    want = [[a[: len(b)] == b for b in all_strings] for a in all_strings]
    assert tree.ancestor_mask().tolist() == want
    assert tree.position_ids(100).tolist() == [100 + len(s) for s in all_strings]


@given(st.lists(DRAFTS, min_size=1, max_size=3), st.data())
def test_accepted_length_of_every_size(several, data):
    """Of batches of trees, the smaller ones padded."""
    trees = [TokenTree.from_drafts(padded(drafts)) for drafts in several]
    truths = [data.draw(st.lists(st.integers(0, 3), max_size=6)) for _ in trees]
    lines, batch = padded([[*truth, -1, -1] for truth in truths]), Trees.joined(trees)
    got = accepted_by_size(batch.tokens, batch.parents, lines)
    assert got.dtype == np.int32
    for tree, truth, line, lengths in zip(trees, truths, lines, got.tolist()):
        want = [longest(strings(tree)[: n + 1], truth) for n in range(tree.size)]
        assert lengths == want + want[-1:] * (batch.tokens.shape[1] - tree.size)
        assert [tree.head(n).accepted(line) for n in range(tree.size + 1)] == [0, *want]


def test_single_trees_as_a_batch():
    single = [
        TokenTree.from_parents([1, 2, 3], [-1, 0, 0]),
        TokenTree.from_drafts(np.full((1, 2), -1)),
        TokenTree.from_parents([7], [-1]),
    ]
    batch = Trees.joined(single)
    assert batch.tokens.tolist() == [[1, 2, 3], [-1, -1, -1], [7, -1, -1]] and batch.count.tolist() == [3, 0, 1]
    assert batch.parents.tolist() == [[-1, 0, 0], [-1, -1, -1], [-1, -1, -1]]
    assert batch.depths.tolist() == [[1, 2, 2], [0, 0, 0], [1, 0, 0]]
    assert (batch.logq == -np.inf).tolist() == [[False, False, False], [True, True, True], [False, True, True]]
    assert {name: getattr(batch, name).dtype for name in ("parents", "logq")} == {"parents": "int32", "logq": "float32"}
    assert Trees.joined([]).tokens.shape == (0, 0)


def test_an_empty_tree():
    tree = TokenTree.from_drafts(np.full((2, 3), -1))
    assert (tree.size, tree.accepted(np.array([1]))) == (0, 0)
    assert tree.leaves() == [] and tree.ancestor_mask().shape == (0, 0)


def arrays(**changes):
    given = dict(tokens=[1, 2], parents=[-1, 0], depths=[1, 2])
    made = {name: np.array(value, np.int32) for name, value in {**given, **changes}.items()}
    return {"logq": np.zeros(2, np.float32)} | made


BAD = {
    ("parents[1] = 1", "-1"): arrays(parents=[-1, 1]),
    ("parents[0] = -2", "-1"): arrays(parents=[-2, 0]),
    ("depths[1] = 3", "2"): arrays(depths=[1, 3]),
    ("tokens[1] = -1",): arrays(tokens=[1, -1]),
    ("children",): arrays(tokens=[1, 1], parents=[-1, -1], depths=[1, 1]),
    ("depths", "[n]", "[2]", "[1]"): arrays(depths=[1]),
}


@pytest.mark.parametrize("text", BAD)
def test_malformed_trees_are_refused(text):
    refuses(ValueError, lambda: TokenTree(**BAD[text]), *text)


def test_wrong_arguments_are_refused():
    refuses(TypeError, lambda: TokenTree(**(arrays() | {"logq": np.zeros(2)})), "logq", "float64", "float32")
    refuses(TypeError, lambda: TokenTree.from_drafts(np.array([[1.0]])), "drafts", "float64")
    refuses(ValueError, lambda: TokenTree.from_drafts(np.array([[1, -1, 2]])), "drafts[0]", "[1, -1, 2]")
    refuses(ValueError, lambda: TokenTree(**arrays()).head(-1), "head", "0")
    refuses(ValueError, lambda: accepted_by_size([[0, 0]], [[0, 0, 0]], [[0, 0]]), "parents")
    for parents in ([1, -1], [-1, 1]):  # a later node, the node itself
        with refused(ValueError, "parents", "-1"):
            accepted_by_size(np.array([[1, 2]]), np.array([parents]), np.array([[1]]))


@pytest.mark.parametrize("seed", range(30))
def test_no_path_is_worth_more(seed):
    draw = np.random.default_rng(seed)
    n, cost, most = int(draw.integers(0, 40)), float(draw.choice([0, 0.05, 0.2, 0.9])), int(draw.integers(0, 9))
    parents = [int(draw.integers(-1, node)) for node in range(n)]
    tree = tree_of(parents, draw.uniform(0.1, 1, n))

    def worth(path):
        return sum(float(np.exp(np.float64(tree.logq[node]))) - cost for node in path)

    chain = tree.best_chain(cost, most=most).tokens.tolist()  # tokens are nodes here
    assert chain == (tree.path_to(chain[-1]) if chain else [])
    paths = [tree.path_to(node) for node in range(n)]
    assert worth(chain) == pytest.approx(max([0.0, *(worth(path) for path in paths if len(path) <= most)]))


@pytest.mark.parametrize("parents, width", [([-1, 1], 3), ([-1, -2], 3), ([-1, 0], 2), ([-1], 3)])
def test_columns_that_are_no_tree_are_not_laid(parents, width):
    columns = [np.array(column, np.int32) for column in ([5, 6], parents, [1, 1])]
    refuses(ValueError, lambda: _core.lay_trees([tuple(columns)], [4], width), "expected")


def test_columns_need_not_be_contiguous():
    """A drafter may cut them out of a table."""
    tokens, parents, depths = np.array([[5, -1, 1], [6, 0, 2], [7, -1, 1]], np.int32).T
    tree = TokenTree(tokens=tokens, parents=parents, depths=depths, logq=np.zeros(3, np.float32))
    assert tree.accepted(np.array([5, 6, 9])) == 2 and tree.child(-1, 7) == 2 and tree.child(0, 7) is None
    assert tree.ancestor_mask().tolist() == [[True, False, False], [True, True, False], [False, False, True]]
