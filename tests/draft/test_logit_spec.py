"""LogitSpec: by hand, and against a twin that searches the whole text for each n-gram."""

import numpy as np
import pytest

from rescore.decode.draft.logit_spec import FollowedText, LogitSpecDrafter
from rescore.decode.models.draft_step import DraftStep, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree


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
