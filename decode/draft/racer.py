"""RACER: what followed the end of the text before, most frequent first, then the target's latest predictions.

Zhang et al. 2026, "RACER" (arXiv 2604.14885), with the parameters of the authors' code. All runs of 10 tokens of the
text are kept in a trie with counts, of 10,000 nodes at most. Every suffix of the text, of 2 tokens or more, that is in
the trie is a *border*. Of the nodes below the borders, the n most frequent are drafted. A node below several borders is
listed with each of them but drafted once. The nodes left are a tree of predictions after tokens, as Token Recycling
keeps them.

Open in the description, and chosen here: of equally frequent nodes the less deep are drafted first. Borders are always
all that there are, found by walks from the root; the authors' automaton renews its failure links lazily and misses
some. A node is used when a run is added along it or a border lies on or below it; the one dropped is a leaf.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.sources import DraftSources, Options, fixed_size
from rescore.decode.draft.token_recycling import TOP, TokenRecycling
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree, Trees

LENGTH = 10  # tokens of a run
CAPACITY = 10_000  # nodes of the trie
SHORTEST = 2  # tokens of a border


class RacerDrafter:
    """Drafts trees of at most `nodes` nodes."""

    drawn = 0

    def __init__(self, nodes: int = 64):
        self.nodes = nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _RacerSession:
        return _RacerSession(self.nodes, len(prompts))


class _RacerSession:
    def __init__(self, nodes: int, requests: int):
        self._nodes, self._requests = nodes, [(RunTrie(), TokenRecycling()) for _ in range(requests)]

    def propose(self, step: DraftStep) -> Proposed:
        assert step.predictions is not None, "whoever runs a drafter gives it the predictions"
        trees = []
        for request, read, history in zip(step.requests, step.predictions(TOP), step.histories):
            runs, predicted = self._requests[request]
            runs.extend(history[runs.size :])
            predicted.read(read)
            trees.append(racer_tree(runs, predicted, int(history[-1]), step.nodes or self._nodes))
        return Trees.joined(trees)

    def select(self, rows: Sequence[int]) -> None:
        self._requests = [self._requests[row] for row in rows]


def racer_tree(runs: RunTrie, predicted: TokenRecycling, root: int, n: int) -> TokenTree:
    """At most n nodes after a root token, the text's last: the most frequent, and then predictions, breadth first.

    A node of breadth b gets the first b predictions after its token as children. The first child's breadth is b / 2, or
    b below the root token, whose own is 8; each next child's is half the one before, and none is below 1.
    """
    paths = dict.fromkeys(runs.frequent(n))  # in order; from the root token down
    queue: deque[tuple[tuple[int, ...], int, int]] = deque([((), root, TOP)])  # path, token, breadth
    while queue and len(paths) < n:
        path, token, breadth = queue.popleft()
        below = breadth // 2 if path else breadth
        for child in predicted.after(token)[:breadth]:
            if len(paths) == n:
                break
            paths[(*path, child)] = None
            queue.append(((*path, child), child, max(1, below)))
            below //= 2
    number = {path: node for node, path in enumerate([(), *paths], -1)}
    return TokenTree.from_parents([path[-1] for path in paths], [number[path[:-1]] for path in paths])


@dataclass(slots=True, eq=False)
class _Node:
    token: int = -1
    parent: _Node | None = None
    count: int = 0
    children: dict[int, _Node] = field(default_factory=dict)


class RunTrie:
    """All runs of `length` tokens of a growing text, with counts; the least recently used of more than `capacity` nodes
    are dropped. capacity: at least `length`.
    """

    def __init__(self, length: int = LENGTH, capacity: int = CAPACITY):
        self._root, self._capacity = _Node(), capacity
        self._used: OrderedDict[_Node, None] = OrderedDict()  # least recently first, a node before its parent
        self._last: deque[int] = deque(maxlen=length)
        self.size = 0  # tokens read

    def extend(self, tokens: NDArray[np.integer]) -> None:
        for token in tokens.tolist():
            self._last.append(token)
            if len(self._last) == self._last.maxlen:
                self._add()
        self.size += len(tokens)

    def frequent(self, n: int) -> list[tuple[int, ...]]:
        """The n most frequent nodes below the borders, as paths from their border down, parents first."""
        queue: list[tuple[int, int, tuple[int, ...], _Node]] = []  # (-count, depth, path, node)

        def offer(node: _Node, depth: int, path: tuple[int, ...]) -> None:
            for token, child in node.children.items():
                heapq.heappush(queue, (-child.count, depth + 1, (*path, token), child))

        last = list(self._last)
        for size in range(len(last), SHORTEST - 1, -1):
            if border := self._find(last[-size:]):
                self._use(border)
                offer(border, size, ())
        found: list[tuple[int, ...]] = []
        while queue and len(found) < n:
            _, depth, path, node = heapq.heappop(queue)
            found.append(path)
            offer(node, depth, path)
        return found

    def _add(self) -> None:
        """Adds the last run."""
        node = self._root
        for token in self._last:
            if token not in node.children:
                node.children[token] = _Node(token, node)
            node = node.children[token]
            node.count += 1
        self._use(node)
        while len(self._used) > self._capacity:
            oldest, _ = self._used.popitem(last=False)
            assert oldest.parent is not None
            del oldest.parent.children[oldest.token]

    def _find(self, run: Sequence[int]) -> _Node | None:
        node: _Node | None = self._root
        for token in run:
            node = node and node.children.get(token)
        return node

    def _use(self, node: _Node) -> None:
        while node.parent is not None:
            self._used[node] = None
            self._used.move_to_end(node)
            node = node.parent


def of_sources(sources: DraftSources, options: Options) -> RacerDrafter:
    return RacerDrafter(fixed_size(options["nodes"]))
