"""Published drafters: against transformers' own, against enumeration, and by hand."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rescore.decode.draft.prompt_lookup import prompt_lookup
from rescore.decode.draft.suffix_decoding import SuffixTree
from rescore.decode.draft.token_recycling import CHILDREN, TOP, TokenRecycling

texts = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@settings(max_examples=300, deadline=None)
@given(texts, st.integers(1, 12), st.integers(1, 3), st.sampled_from([(), (3,), (0, 4)]))
def test_prompt_lookup_is_that_of_transformers(text, n, longest, ends):
    torch = pytest.importorskip("torch")
    generation = pytest.importorskip("transformers.generation.candidate_generator")
    theirs = generation.PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor(ends) if ends else None,
        num_output_tokens=n,
        max_matching_ngram_size=longest,
        max_length=10_000,
    )
    ids, _ = theirs.get_candidates(torch.tensor([text]))
    mine = prompt_lookup(np.array(text, np.int32), n, longest=longest, ends=ends)
    assert mine.tolist() == ids[0, len(text) :].tolist()


def recycling(draw, tokens=12):
    matrix, after = TokenRecycling(), {}
    for token in range(0, tokens, 2):  # nothing is known of the others
        ids = draw.permutation(tokens)[:TOP].astype(np.int32)
        p = -np.sort(-draw.dirichlet(np.ones(TOP + 1)))[:TOP].astype(np.float32)
        matrix.see(token, ids, p)
        after[token] = list(zip(ids.tolist(), p.tolist()))
    return matrix, after


def test_the_published_tree():
    assert sum(CHILDREN.values()) == 80
    matrix = TokenRecycling()
    for token in range(8):
        matrix.see(token, np.arange(8, dtype=np.int32), np.full(8, 0.1, np.float32))
    tree = matrix.static_tree(3)
    assert tree.size == 80 and np.bincount(tree.depths)[1:].tolist() == [8, 21, 25, 15, 8, 3]
    paths = {tuple(tree.tokens[tree.path_to(node)].tolist()) for node in range(80)}
    assert {(7,), (0, 7), (1, 3), (3, 1), (0, 2, 1), (1, 0, 1), (0, 0, 0, 4), (0, 0, 0, 1, 0, 0)} <= paths
    assert matrix.static_tree(9).size == 0


def test_the_last_prediction_counts():
    matrix = TokenRecycling()
    matrix.see(1, np.array([2, 3], np.int32), np.array([0.6, 0.3], np.float32))
    matrix.see(2, np.array([1], np.int32), np.array([0.9], np.float32))
    tree = matrix.best_tree(1, 4)  # 0.6, 0.6 * 0.9, 0.54 * 0.6, 0.3
    assert tree.tokens.tolist() == [2, 1, 2, 3] and tree.parents.tolist() == [-1, 0, 1, -1]
    matrix.see(1, np.array([3], np.int32), np.array([0.5], np.float32))
    assert matrix.best_tree(1, 4).tokens.tolist() == [3]


@pytest.mark.parametrize("seed", range(5))
def test_best_trees_hold_the_greatest_products(seed):
    matrix, after = recycling(np.random.default_rng(seed))
    products, frontier = {}, {(): 1.0}
    for _ in range(9):
        frontier = {
            (*path, child): p * share
            for path, p in frontier.items()
            for child, share in after.get(path[-1] if path else 0, ())
        }
        products |= frontier
    tree = matrix.best_tree(0, 20)
    found = [products[tuple(tree.tokens[tree.path_to(node)].tolist())] for node in range(tree.size)]
    assert found == pytest.approx(sorted(products.values(), reverse=True)[:20])


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(1, 8), st.integers(2, 6))
@example([2, 1, 0, 1, 2, 1], 6, 6)  # six nodes of a third each, and four of a half
def test_suffix_trees_have_the_greatest_score(text, n, depth):
    """Of all lengths of the match, from the counts of all runs of the text."""
    tree = SuffixTree(depth)
    for piece in np.array_split(np.array(text), 3):
        tree.extend(piece)
    runs = [tuple(text[i:j]) for i in range(len(text)) for j in range(i + 1, min(i + depth, len(text)) + 1)]
    count = {run: runs.count(run) for run in set(runs)}
    best: tuple[float, list] = (0.0, [])
    for size in range(1, min(depth, len(text)) + 1):
        match = tuple(text[len(text) - size :])
        d = {match: 1.0}
        for run in sorted((run for run in count if len(run) > size and run[:size] == match), key=len):
            if run[:-1] in d and (share := d[run[:-1]] * count[run] / count[run[:-1]]) >= 0.1:
                d[run] = share
        taken = sorted((share for run, share in d.items() if run != match), reverse=True)[:n]
        if sum(taken) > best[0] + 1e-12:
            best = sum(taken), taken
    found = tree.tree(n)
    assert found.size == len(best[1])
    paths = [tuple(found.tokens[found.path_to(node)].tolist()) for node in range(found.size)]
    scores = []
    for size in range(1, min(depth, len(text)) + 1):
        match = tuple(text[len(text) - size :])
        if all((*match, *path) in count for path in paths):
            products = [
                np.prod([count[(*match, *path[: i + 1])] / count[(*match, *path[:i])] for i in range(len(path))])
                for path in paths
            ]
            scores.append(sum(products))
    assert not paths or any(score == pytest.approx(best[0]) for score in scores)


def test_suffix_decoding_by_hand():
    """a b c a b d a b: after "a b" c and d came once each, and the end of the text stands there a third time."""
    tree = SuffixTree()
    tree.extend(np.array([0, 1, 2, 0, 1, 3, 0, 1]))
    found = tree.tree(4)
    assert {tuple(found.tokens[found.path_to(node)].tolist()) for node in range(4)} == {(2,), (2, 0), (3,), (3, 0)}
    assert sorted(found.depths.tolist()) == [1, 1, 2, 2]
    assert SuffixTree().tree(4).size == 0
