"""RACER (Zhang et al. 2026)."""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.published.baseline import Method
from rescore.decode.draft.published.token_recycling import TokenRecycling
from rescore.decode.models.draft_step import TOP, LastPass, Read
from rescore.lattice.tree import TokenTree

LENGTH = 10  # tokens of RACER's runs
CAPACITY = 10_000  # nodes of its trie
SHORTEST = 2  # tokens of a border


class Racer(Method):
    """RACER: what followed the end of the text before, most frequent first, then the target's latest predictions.

    Zhang et al. 2026, "RACER" (arXiv 2604.14885), with the parameters of the authors' code. All runs of 10 tokens of
    the text are kept in a trie with counts, of 10,000 nodes at most. Every suffix of the text, of 2 tokens or more,
    that is in the trie is a *border*. Of the nodes below the borders, the n most frequent are drafted. A node below
    several borders is listed with each of them but drafted once. The nodes left are a tree of predictions after tokens,
    as Token Recycling keeps them.

    Open in the description, and chosen here: of equally frequent nodes the less deep are drafted first. Borders are
    always all that there are, found by walks from the root; the authors' automaton renews its failure links lazily and
    misses some. A node is used when a run is added along it or a border lies on or below it; the one dropped is a leaf.
    """

    published, predictions = 64, TOP

    def __init__(self) -> None:
        self._runs, self._predicted = RunTrie(), TokenRecycling()

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None and read is not None
        self._runs.extend(history[self._runs.size :])
        self._predicted.read(read)
        return racer_tree(self._runs, self._predicted, int(history[-1]), n)


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
class _Run:
    token: int = -1
    parent: _Run | None = None
    count: int = 0
    children: dict[int, _Run] = field(default_factory=dict)


class RunTrie:
    """All runs of `length` tokens of a growing text, with counts; the least recently used of more than `capacity` nodes
    are dropped. capacity: at least `length`.
    """

    def __init__(self, length: int = LENGTH, capacity: int = CAPACITY):
        self._root, self._capacity = _Run(), capacity
        self._used: OrderedDict[_Run, None] = OrderedDict()  # least recently first, a node before its parent
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
        queue: list[tuple[int, int, tuple[int, ...], _Run]] = []  # (-count, depth, path, node)

        def offer(node: _Run, depth: int, path: tuple[int, ...]) -> None:
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
                node.children[token] = _Run(token, node)
            node = node.children[token]
            node.count += 1
        self._use(node)
        while len(self._used) > self._capacity:
            oldest, _ = self._used.popitem(last=False)
            assert oldest.parent is not None
            del oldest.parent.children[oldest.token]

    def _find(self, run: Sequence[int]) -> _Run | None:
        node: _Run | None = self._root
        for token in run:
            node = node and node.children.get(token)
        return node

    def _use(self, node: _Run) -> None:
        while node.parent is not None:
            self._used[node] = None
            self._used.move_to_end(node)
            node = node.parent
