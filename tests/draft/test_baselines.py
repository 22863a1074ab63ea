"""Published drafters: against transformers' own, against enumeration and twins, and against the model's own passes."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from support.drafts import strings
from support.steps import texts_of
from support.tiny_blockwise import predicted, text, trained
from support.watched import Watched

from rescore import Options, generate
from rescore.decode.draft.published.baseline import BaselineDrafter
from rescore.decode.draft.published.logit_spec import FollowedText
from rescore.decode.draft.published.prompt_lookup import looked_up
from rescore.decode.draft.published.racer import Racer, RunTrie
from rescore.decode.draft.published.suffix_decoding import SuffixTree
from rescore.decode.draft.published.token_recycling import CHILDREN, TokenRecycling
from rescore.decode.models.blockwise import BlockwiseTarget
from rescore.decode.models.draft_step import TOP, DraftStep, LastPass, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

texts = st.lists(st.integers(0, 4), min_size=1, max_size=40)


@settings(max_examples=100, deadline=None)
@given(texts, st.integers(1, 12), st.integers(1, 3), st.sampled_from([(), (3,), (0, 4)]))
def test_prompt_lookup_is_that_of_transformers(text, n, longest, ends):
    generation = pytest.importorskip("transformers.generation.candidate_generator")
    theirs = generation.PromptLookupCandidateGenerator(
        eos_token_id=torch.tensor(ends) if ends else None,
        num_output_tokens=n,
        max_matching_ngram_size=longest,
        max_length=10_000,
    )
    ids, _ = theirs.get_candidates(torch.tensor([text]))
    mine = looked_up(np.array(text, np.int32), n, longest=longest, ends=ends)
    assert mine.tolist() == ids[0, len(text) :].tolist()


def test_the_published_tree():
    assert sum(CHILDREN.values()) == 80
    matrix = TokenRecycling()
    for token in range(8):
        matrix.see(token, np.arange(8, dtype=np.int32), np.full(8, 0.1, np.float32))
    tree = matrix.static_tree(3)
    assert tree.size == 80 and np.bincount(tree.depths)[1:].tolist() == [8, 21, 25, 15, 8, 3]
    paths = set(strings(tree))
    assert {(7,), (0, 7), (1, 3), (3, 1), (0, 2, 1), (1, 0, 1), (0, 0, 0, 4), (0, 0, 0, 1, 0, 0)} <= paths
    assert matrix.static_tree(9).size == 0


@pytest.mark.parametrize("seed", range(3))
def test_best_trees_hold_the_greatest_products(seed):
    draw, matrix, after, products, frontier = np.random.default_rng(seed), TokenRecycling(), {}, {}, {(): 1.0}
    for token in range(0, 12, 2):  # nothing is known of the others
        ids = draw.permutation(12)[:TOP].astype(np.int32)
        p = -np.sort(-draw.dirichlet(np.ones(TOP + 1)))[:TOP].astype(np.float32)
        matrix.see(token, ids, p)
        after[token] = list(zip(ids.tolist(), p.tolist()))
    for _ in range(6):
        frontier = {
            (*path, child): p * share
            for path, p in frontier.items()
            for child, share in after.get(path[-1] if path else 0, ())
        }
        products |= frontier
    found = [products[path] for path in strings(matrix.best_tree(0, 20))]
    assert found == pytest.approx(sorted(products.values(), reverse=True)[:20])


@settings(max_examples=100, deadline=None)
@given(texts, st.integers(1, 8), st.integers(2, 6))
@example([2, 1, 0, 1, 2, 1], 6, 6)  # six nodes of a third each, and four of a half
def test_suffix_trees_have_the_greatest_score(text, n, depth):
    """Of all lengths of the match, from the counts of all runs of the text."""
    tree = SuffixTree(depth)
    for piece in np.array_split(np.array(text), 3):
        tree.extend(piece)
    runs = [tuple(text[i:j]) for i in range(len(text)) for j in range(i + 1, min(i + depth, len(text)) + 1)]
    count = {run: runs.count(run) for run in set(runs)}
    found, best, scores = strings(tree.tree(n)), (0.0, 0), []
    for size in range(1, min(depth, len(text)) + 1):
        match = tuple(text[len(text) - size :])
        share = {match: 1.0}
        for run in sorted((run for run in count if len(run) > size and run[:size] == match), key=len):
            if run[:-1] in share and (own := share[run[:-1]] * count[run] / count[run[:-1]]) >= 0.1:
                share[run] = own
        taken = sorted((own for run, own in share.items() if run != match), reverse=True)[:n]
        if sum(taken) > best[0] + 1e-12:
            best = sum(taken), len(taken)
        if all((*match, *path) in share for path in found):
            scores.append(sum(share[(*match, *path)] for path in found))
    assert len(found) == best[1]
    assert not found or any(score == pytest.approx(best[0]) for score in scores)


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
    paths = (tuple(branch[:end]) for branch in branches for end in range(1, len(branch) + 1))
    return list(dict.fromkeys(paths))[:n]


def step(histories, numbers, reads, **more):
    """A step with these predictions, each cut to the k best that are asked for."""

    def predictions(k):
        return [Read(read.tokens, read.ids[:, :k], read.p[:, :k]) for read in reads]

    return DraftStep(texts=texts_of(histories, numbers), room=[99] * len(histories), predictions=predictions, **more)


def end_one(rng, places):
    """Ends a request now and then."""
    if len(places) > 1 and rng.random() < 0.1:
        del places[int(rng.integers(len(places)))]


@pytest.mark.parametrize("seed", range(4))
def test_logit_spec_is_its_twin(seed):
    """Several requests of random texts, some of which end, and random drafts that were accepted in part."""
    rng = np.random.default_rng(seed)
    vocabulary, requests = int(rng.integers(2, 9)), 3
    session = BaselineDrafter(FollowedText).open([np.zeros(0, np.int64)] * requests, Shaping())
    texts, places = [np.zeros(0, np.int32)] * requests, [0, 1, 2]
    for turn in range(25):
        nodes, reads, last, best = [None, 5, 16, 64][rng.integers(4)], [], [], []
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
        asked = step([texts[place] for place in places], places, reads, nodes=nodes, last=last)
        for tree, place, probable in zip(session.propose(asked), places, best):
            assert strings(tree) == twin(texts[place].tolist(), probable, nodes or 64)
        end_one(rng, places)


def test_a_step_without_its_last_pass_ends_with_the_root_tokens_prediction():
    """As in a replay, which reads the text alone."""
    session = BaselineDrafter(FollowedText, 8).open([np.zeros(0, np.int64)], Shaping())
    ids = np.array([[4, 5, 6], [1, 2, 3]], np.int32)
    read = Read(np.array([8, 9], np.int32), ids, np.full((2, 3), 0.1, np.float32))
    history = np.array([8, 9, 1], np.int32)
    (tree,) = session.propose(step([history], [0], [read]))
    assert strings(tree) == [(2,), (3,)]


class RacerTwin:
    """Nodes are runs of the text that begin a run of `length`, with their counts and when each was used last."""

    def __init__(self, length: int, capacity: int):
        self.length, self.capacity, self.now = length, capacity, 0
        self.text, self.count, self.used, self.after = [], {}, {}, {}

    def use(self, run: tuple[int, ...]) -> None:
        self.now += 1
        self.used |= {run[:depth]: (self.now, -depth) for depth in range(1, len(run) + 1)}

    def extend(self, tokens) -> None:
        for token in tokens:
            self.text.append(token)
            run = tuple(self.text[-self.length :])
            if len(run) == self.length:
                for depth in range(1, self.length + 1):
                    self.count[run[:depth]] = self.count.get(run[:depth], 0) + 1
                self.use(run)
                for dropped in sorted(self.used, key=self.used.__getitem__)[: -self.capacity]:
                    del self.used[dropped], self.count[dropped]

    def tree(self, n: int) -> list[tuple[int, ...]]:
        below = []
        for size in range(min(self.length, len(self.text)), 1, -1):
            suffix = tuple(self.text[-size:])
            if suffix in self.count:
                self.use(suffix)
                runs = [run for run in self.count if run[:size] == suffix and len(run) > size]
                below += [(-self.count[run], len(run), run[size:]) for run in runs]
        drafted = list(dict.fromkeys(path for *_, path in sorted(below)[:n]))
        layer = [((), 8)]
        while layer and len(drafted) < n:
            grown = []
            for path, breadth in layer:
                children = self.after.get(path[-1] if path else self.text[-1], [])[:breadth]
                for rank, child in enumerate(children):
                    grown.append(((*path, child), max(1, breadth // 2 ** (rank + bool(path)))))
            drafted += [path for path, _ in grown if path not in drafted]
            layer = grown
        return drafted[:n]


@pytest.mark.parametrize("length, capacity", [(10, 10_000), (4, 20), (5, 50), (6, 30)])
def test_racer_is_its_twin(length, capacity, monkeypatch):
    """Several requests, of which steps draft for some and a few end; texts, sizes and predictions are random. Of more
    nodes than the capacity, the least recently used are dropped.
    """
    monkeypatch.setattr(RunTrie.__init__, "__defaults__", (length, capacity))
    rng = np.random.default_rng(capacity)
    vocabulary, requests = int(rng.integers(2, 7)), 3
    session = BaselineDrafter(Racer).open([np.zeros(0, np.int64)] * requests, Shaping())
    twins = [RacerTwin(length, capacity) for _ in range(requests)]
    texts, places = [np.zeros(0, np.int32)] * requests, [0, 1, 2]
    for _ in range(25):
        going = [places[row] for row in sorted(rng.permutation(len(places))[: rng.integers(1, len(places) + 1)])]
        nodes, reads = [None, 5, 16, 64][rng.integers(4)], []
        for place in going:
            fresh = rng.integers(0, vocabulary, rng.integers(1, 9)).astype(np.int32)
            texts[place] = np.append(texts[place], fresh)
            read = rng.integers(0, vocabulary, rng.integers(1, 5)).astype(np.int32)
            ids = np.array([rng.permutation(12)[:8] for _ in read], np.int32)
            ids[rng.random(len(read)) < 0.3] = -1
            reads.append(Read(read, ids, np.full(ids.shape, 0.1, np.float32)))
            twins[place].extend(fresh.tolist())
            twins[place].after |= {int(token): row.tolist() for token, row in zip(read, ids) if row[0] >= 0}
        asked = step([texts[place] for place in going], going, reads, nodes=nodes)
        for place, tree in zip(going, session.propose(asked)):
            assert strings(tree) == twins[place].tree(nodes or 64)
        end_one(rng, places)
    assert any(len(twin.count) == capacity for twin in twins) == (capacity < 100)


def test_every_token_read_is_recycled():
    """The latest prediction of every token of prompt, text and tree nodes."""
    drafter = Watched(BaselineDrafter(TokenRecycling))
    call = BlockwiseTarget(trained()), [text(9, seed=3)]
    plain, drafted = (generate(*call, one, Options(max_tokens=14))[0] for one in (None, drafter))
    assert drafted.tokens.tolist() == plain.tokens.tolist() and drafted.statistics.passes < plain.statistics.passes
    wanted = {}
    for step in drafter.steps:
        history, last = step.histories[0].tolist(), step.last[0]
        if not wanted:
            wanted = {history[at - 1]: predicted(history[:at]) for at in range(1, len(history) - 1)}
        read = history[: len(history) - 1 - len(last.accepted)]
        wanted[read[-1]] = predicted(read)
        for node, token in enumerate(last.tree.tokens.tolist()):
            path = last.tree.tokens[last.tree.path_to(node)].tolist()
            wanted[token] = predicted([*read, *path])
    ((matrix,),) = drafter.session.propose.args
    assert {token: {*ids.tolist()} for token, (ids, _) in matrix._after.items()} == {x: {*p} for x, p in wanted.items()}
