"""RACER: by hand, and against a twin that counts runs of the text and looks at every suffix."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rescore.decode.draft.racer import RacerDrafter, RunTrie, racer_tree
from rescore.decode.draft.token_recycling import TokenRecycling
from rescore.decode.models.draft_step import DraftStep, Read
from rescore.decode.verify.shaping import Shaping


def paths_of(tree) -> list[tuple[int, ...]]:
    return [tuple(tree.tokens[tree.path_to(node)].tolist()) for node in range(tree.size)]


def trie(text, *size) -> RunTrie:
    runs = RunTrie(*size)
    runs.extend(np.array(text))
    return runs


def table(after: dict[int, list[int]]) -> TokenRecycling:
    predicted = TokenRecycling()
    for token, ids in after.items():
        predicted.see(token, np.array(ids, np.int32), np.full(len(ids), 0.1, np.float32))
    return predicted


def test_retrieval_by_hand():
    """1 2 3 4 twice and 2 3 5 once among runs of 4, and the text ends with 1 2 3.

    Below 2 3: 4, twice, and then 1 and 2 3 once each; 5 once, and 1 below it. Below 1 2 3: 4, twice.
    """
    runs = trie([1, 2, 3, 4, 1, 2, 3, 4, 2, 3, 5, 1, 2, 3], 4, 100)
    assert runs.frequent(2) == [(4,), (4,)]  # of depths 3 and 4
    assert runs.frequent(9) == [(4,), (4,), (5,), (4, 1), (4, 2), (5, 1)]
    assert paths_of(racer_tree(runs, table({}), 3, 9)) == [(4,), (5,), (4, 1), (4, 2), (5, 1)]
    assert paths_of(racer_tree(runs, table({}), 3, 2)) == [(4,)]
    assert trie([1, 1], 2, 100).frequent(9) == []  # a run that ends the text has nothing below
    assert trie([1], 2, 100).frequent(9) == []


def test_predictions_by_hand():
    """Breadths 8, 4, 2 and 1 below the root; half, a quarter of these and so on below its children."""
    after = {0: [1, 2, 3, 4], 1: [11, 12, 13, 14, 15], 2: [21, 22, 23], 4: [41, 42], 11: [1, 2, 3, 4, 5], 13: [9, 9]}
    tree = paths_of(racer_tree(RunTrie(), table(after), 0, 100))
    first = [(1,), (2,), (3,), (4,)]
    second = [(1, 11), (1, 12), (1, 13), (1, 14), (1, 15), (2, 21), (2, 22), (2, 23), (4, 41)]
    third = [(1, 11, 1), (1, 11, 2), (1, 11, 3), (1, 11, 4), (1, 13, 9)]
    assert tree[:18] == [*first, *second, *third]
    assert tree[18:20] == [(1, 11, 1, 11), (1, 11, 1, 12)] and len(tree) > 20
    assert paths_of(racer_tree(RunTrie(), table(after), 0, 6)) == tree[:6]
    assert paths_of(racer_tree(RunTrie(), table(after), 7, 6)) == []


def test_what_was_retrieved_is_not_drafted_again():
    """And what is predicted after it counts on: all nodes are used."""
    runs = trie([1, 2, 3, 4, 1, 2], 4, 100)  # below 1 2: 3, and then 4
    tree = racer_tree(runs, table({2: [3, 5], 3: [4, 6], 5: [7]}), 2, 5)
    assert paths_of(tree) == [(3,), (3, 4), (5,), (3, 6), (5, 7)]


@dataclass
class Twin:
    """Nodes are runs of the text that begin a run of `length`, with their counts and when each was used last."""

    length: int
    capacity: int
    text: list[int] = field(default_factory=list)
    count: dict[tuple[int, ...], int] = field(default_factory=dict)
    used: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)
    after: dict[int, list[int]] = field(default_factory=dict)
    now: int = 0

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


@pytest.mark.parametrize("seed", range(12))
def test_the_session_is_its_twin(seed):
    """Several requests, of which steps draft for some and a few end; texts, sizes and predictions are random."""
    rng = np.random.default_rng(seed)
    vocabulary, requests = int(rng.integers(2, 7)), 3
    session = RacerDrafter(64).open([np.zeros(0, np.int64)] * requests, Shaping())
    twins, texts, places = [Twin(10, 10_000) for _ in range(requests)], [np.zeros(0, np.int32)] * requests, [0, 1, 2]
    for _ in range(25):
        rows = sorted(rng.permutation(len(places))[: rng.integers(1, len(places) + 1)].tolist())
        nodes, reads = [None, 5, 16, 64][rng.integers(4)], []
        for place in (places[row] for row in rows):
            fresh = rng.integers(0, vocabulary, rng.integers(1, 9)).astype(np.int32)
            texts[place] = np.append(texts[place], fresh)
            read = rng.integers(0, vocabulary, rng.integers(1, 5)).astype(np.int32)
            ids = np.array([rng.permutation(12)[:8] for _ in read], np.int32)
            ids[rng.random(len(read)) < 0.3] = -1
            reads.append(Read(read, ids, np.full(ids.shape, 0.1, np.float32)))
            twins[place].extend(fresh.tolist())
            twins[place].after |= {int(token): row.tolist() for token, row in zip(read, ids) if row[0] >= 0}
        step = DraftStep(
            histories=[texts[places[row]] for row in rows],
            room=[99] * len(rows),
            rows=rows,
            nodes=nodes,
            predictions=lambda k, reads=reads: reads,
        )
        for row, tree in zip(rows, session.propose(step)):
            assert paths_of(tree) == twins[places[row]].tree(nodes or 64)
        if len(places) > 1 and rng.random() < 0.1:
            kept = sorted(rng.permutation(len(places))[: len(places) - 1].tolist())
            session.select(kept)
            places = [places[row] for row in kept]


@pytest.mark.parametrize("seed", range(12))
def test_the_least_recently_used_nodes_are_dropped(seed):
    rng = np.random.default_rng(seed)
    length, vocabulary = int(rng.integers(4, 7)), int(rng.integers(3, 6))
    capacity = int(rng.integers(length, 30))
    runs, twin, full = RunTrie(length, capacity), Twin(length, capacity), 0
    for _ in range(60):
        piece = rng.integers(0, vocabulary, rng.integers(1, 6))
        runs.extend(piece)
        twin.extend(piece.tolist())
        n = int(rng.integers(1, 20))
        assert paths_of(racer_tree(runs, table({}), twin.text[-1], n)) == twin.tree(n)
        full += len(twin.count) == capacity
    assert runs.size == len(twin.text) and full > 20
