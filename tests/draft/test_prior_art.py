"""Published drafters: against transformers' own, against enumeration, and by hand."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rescore.decode.draft.logit_spec import FollowedText, LogitSpecDrafter
from rescore.decode.draft.prompt_lookup import prompt_lookup
from rescore.decode.draft.suffix_decoding import SuffixTree
from rescore.decode.draft.token_recycling import CHILDREN, TOP, TokenRecycling
from rescore.decode.models.draft_step import DraftStep, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

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


def paths_of(tree) -> list[tuple[int, ...]]:
    return [tuple(tree.tokens[tree.path_to(node)].tolist()) for node in range(tree.size)]


def followed(*tokens: int) -> FollowedText:
    text = FollowedText()
    text.extend(np.array(tokens))
    return text


def prefixes(*path: int) -> list[tuple[int, ...]]:
    return [path[:end] for end in range(1, len(path) + 1)]


def test_branches_by_hand():
    """The text goes on after 1 2 as it did before, with 3 4 5 1 2; after 4 with 5 1 2, of which a branch has three."""
    text = followed(1, 2, 3, 4, 5, 1, 2)
    assert text.following([9, 1, 2]) == [3, 4, 5, 1, 2] and text.following([9]) == []
    tree = text.tree([2, 4, 9, 3], 64)  # 2 became the root token
    assert paths_of(tree) == [*prefixes(3, 4, 5, 1, 2), *prefixes(4, 5, 1, 2), (9,)]  # 3 4 5 1 is there already
    assert paths_of(text.tree([2, 4, 9, 3], 7)) == paths_of(tree)[:7]
    assert paths_of(followed(1).tree([1, 5, 1, 7], 64)) == [(5,), (7,)]


def test_less_probable_tokens_have_shorter_branches():
    """Each token before the root token was followed by 70 70 70; the first 8 draft four tokens, to the 32nd three."""
    text = followed(*(token for first in range(1, 60) for token in (first, 70, 70, 70, 70, 70)), 0)
    tree = paths_of(text.tree([*range(1, 60)], 1000))
    for rank, first in enumerate(range(1, 60)):
        longest = max(len(path) for path in tree if path[0] == first)
        assert longest == (4 if rank < 8 else 3 if rank < 32 else 1)


def twin(text: list[int], probable: list[int], n: int) -> list[tuple[int, ...]]:
    def following(context: list[int]) -> list[int]:
        for size in (3, 2, 1):
            ngram = context[-size:]
            ends = [end for end in range(size, len(text)) if text[end - size : end] == ngram and len(ngram) == size]
            if ends:
                place = max((end for end in ends if end + 20 <= len(text)), default=ends[0])
                return text[place : place + 20]
        return []

    branches = [following(text)]
    for rank, token in enumerate(probable):
        if token != text[-1]:
            branches.append([token, *following([*text, token])][: 4 if rank < 8 else 3 if rank < 32 else 1])
    return list(dict.fromkeys(path for branch in branches for path in prefixes(*branch)))[:n]


@pytest.mark.parametrize("seed", range(12))
def test_the_session_is_its_twin(seed):
    """Several requests of random texts, some of which end, and random drafts that were accepted in part."""
    rng = np.random.default_rng(seed)
    vocabulary, requests = int(rng.integers(2, 9)), 3
    session = LogitSpecDrafter(64).open([np.zeros(0, np.int64)] * requests, Shaping())
    texts, places = [np.zeros(0, np.int32)] * requests, [0, 1, 2]
    for turn in range(25):
        nodes = [None, 5, 16, 64][rng.integers(4)]
        reads, last, best = [], [], []
        for place in places:
            texts[place] = np.append(texts[place], rng.integers(0, vocabulary, rng.integers(1, 9))).astype(np.int32)
            tree = TokenTree.from_drafts(rng.integers(0, vocabulary, (3, 4 if turn else 0)))
            accepted = tree.path_to(int(rng.integers(-1, tree.size)))
            rows = 1 + tree.size if turn else len(texts[place])
            ids = np.array([rng.permutation(70)[:64] for _ in range(rows)], np.int32)
            ids[:, rng.integers(3, 64) :] = -1
            reads.append(Read(np.zeros(rows, np.int32), ids, np.full(ids.shape, 0.01, np.float32)))
            last.append(LastPass(tree=tree, accepted=accepted))
            row = ids[[0, *(1 + node for node in accepted)][-1]] if turn else ids[-1]
            best.append([token for token in row.tolist() if token >= 0])
        step = DraftStep(
            histories=[texts[place] for place in places],
            room=[99] * len(places),
            nodes=nodes,
            last=last,
            predictions=lambda k, reads=reads: [Read(*(column[..., :k] for column in read)) for read in reads],
        )
        for tree, place, probable in zip(session.propose(step), places, best):
            assert paths_of(tree) == twin(texts[place].tolist(), probable, nodes or 64)
        if len(places) > 1 and rng.random() < 0.1:
            kept = sorted(rng.permutation(len(places))[: len(places) - 1].tolist())
            session.select(kept)
            places = [places[row] for row in kept]


def test_a_step_without_its_last_pass_ends_with_the_root_tokens_prediction():
    """As in a replay, which reads the text alone."""
    session = LogitSpecDrafter(8).open([np.zeros(0, np.int64)], Shaping())
    ids = np.array([[4, 5, 6], [1, 2, 3]], np.int32)
    read = Read(np.array([8, 9], np.int32), ids, np.full((2, 3), 0.1, np.float32))
    history = np.array([8, 9, 1], np.int32)
    (tree,) = session.propose(DraftStep(histories=[history], room=[9], predictions=lambda k: [read]))
    assert paths_of(tree) == [(2,), (3,)]
