"""SuffixDecoding (Oliaro et al. 2024)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.published.baseline import Method
from rescore.decode.models.draft_step import LastPass, Read
from rescore.lattice.tree import TokenTree

DEPTH = 64  # of a suffix tree: the match and its continuation together
ROUNDING = 1e-12  # bound on the difference between sums of equal scores
LEAST = 0.1  # D of drafted nodes


@dataclass(slots=True)
class _Suffix:
    count: int = 0
    children: dict[int, _Suffix] = field(default_factory=dict)


class SuffixTree(Method):
    """Suffix decoding: the most frequent continuations of what matches the end of the text, scored by counts.

    Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), section 3. Below the match of the last p tokens,
    D(node) = count(node) / count(parent) D(parent). The nodes of greatest D make a tree, and the p whose tree has the
    greatest sum of D wins. The tree holds all runs of at most `depth` tokens of the text of one request alone, and
    every p gets n nodes (the published limit, a p nodes, drafts fewer).
    """

    published = 16

    def __init__(self, depth: int = DEPTH):
        self._root, self._depth = _Suffix(), depth
        self._ends: list[_Suffix] = []  # of the runs of the last 1, 2, .. tokens

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert n is not None
        self.extend(history[self.size :])
        return self.tree(n)

    @property
    def size(self) -> int:
        """Tokens read."""
        return self._root.count

    def extend(self, tokens: NDArray[np.integer]) -> None:
        for token in tokens.tolist():
            self._root.count += 1
            ends = []
            for node in [self._root, *self._ends[: self._depth - 1]]:
                child = node.children.setdefault(token, _Suffix())
                child.count += 1
                ends.append(child)
            self._ends = ends

    def tree(self, n: int) -> TokenTree:
        """Returns the tree of at most n nodes with the greatest sum of D over all match lengths."""
        best, most = TokenTree.from_parents([], []), 0.0
        for match in self._ends:
            if not match.children:
                break  # longer matches do not exist either
            tree, score = _speculated(match, n)
            if score > most + ROUNDING:  # the shortest of equal matches
                best, most = tree, score
        return best


def _speculated(match: _Suffix, n: int) -> tuple[TokenTree, float]:
    tokens: list[int] = []
    parents: list[int] = []
    score, order = 0.0, 0
    queue: list[tuple[float, int, int, int, _Suffix]] = []

    def offer(node: _Suffix, number: int, d: float) -> None:
        nonlocal order
        for token, child in node.children.items():
            order += 1
            if (share := d * child.count / node.count) >= LEAST:
                heapq.heappush(queue, (-share, order, token, number, child))

    offer(match, -1, 1.0)
    while queue and len(tokens) < n:
        share, _, token, parent, node = heapq.heappop(queue)
        tokens.append(token)
        parents.append(parent)
        score -= share
        offer(node, len(tokens) - 1, -share)
    return TokenTree.from_parents(tokens, parents), score
