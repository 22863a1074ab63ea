"""Suffix decoding: the most frequent continuations of what matches the end of the text, scored by counts.

Oliaro et al. 2024, "SuffixDecoding" (arXiv 2411.04975), section 3. Below the match of the last p tokens,
D(node) = count(node) / count(parent) D(parent). The nodes of greatest D make a tree, and the p whose tree has the
greatest sum of D wins. Here the tree holds the text of one request alone, and every p gets n nodes (the published
limit, a p nodes, drafts fewer).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.sources import DraftSources, Options, fixed_size
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree, Trees

DEPTH = 64  # of the suffix tree: the match and its continuation together
ROUNDING = 1e-12  # bound on the difference between sums of equal scores
LEAST = 0.1  # D of drafted nodes


class SuffixDrafter:
    """Drafts trees of at most `nodes` nodes."""

    drawn = 0

    def __init__(self, nodes: int = 16):
        self.nodes = nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _SuffixSession:
        return _SuffixSession(self.nodes, len(prompts))


class _SuffixSession:
    def __init__(self, nodes: int, requests: int):
        self._nodes, self._texts = nodes, [SuffixTree() for _ in range(requests)]

    def propose(self, step: DraftStep) -> Proposed:
        texts = [self._texts[request] for request in step.requests]
        for text, history in zip(texts, step.histories):
            text.extend(history[text.size :])
        return Trees.joined([text.tree(step.nodes or self._nodes) for text in texts])

    def select(self, rows: Sequence[int]) -> None:
        self._texts = [self._texts[row] for row in rows]


@dataclass(slots=True)
class _Node:
    count: int = 0
    children: dict[int, _Node] = field(default_factory=dict)


class SuffixTree:
    """All runs of at most `depth` tokens of a growing text, with their counts."""

    def __init__(self, depth: int = DEPTH):
        self._root, self._depth = _Node(), depth
        self._ends: list[_Node] = []  # of the runs of the last 1, 2, .. tokens

    @property
    def size(self) -> int:
        """Tokens read."""
        return self._root.count

    def extend(self, tokens: NDArray[np.integer]) -> None:
        for token in tokens.tolist():
            self._root.count += 1
            ends = []
            for node in [self._root, *self._ends[: self._depth - 1]]:
                child = node.children.setdefault(token, _Node())
                child.count += 1
                ends.append(child)
            self._ends = ends

    def tree(self, n: int, *, least: float = LEAST) -> TokenTree:
        """Returns the tree of at most n nodes with the greatest sum of D over all match lengths."""
        best, most = TokenTree.from_parents([], []), 0.0
        for match in self._ends:
            if not match.children:
                break  # longer matches do not exist either
            tree, score = _speculated(match, n, least)
            if score > most + ROUNDING:  # the shortest of equal matches
                best, most = tree, score
        return best


def _speculated(match: _Node, n: int, least: float) -> tuple[TokenTree, float]:
    tokens: list[int] = []
    parents: list[int] = []
    score, order = 0.0, 0
    queue: list[tuple[float, int, int, int, _Node]] = []

    def offer(node: _Node, number: int, d: float) -> None:
        nonlocal order
        for token, child in node.children.items():
            order += 1
            if (share := d * child.count / node.count) >= least:
                heapq.heappush(queue, (-share, order, token, number, child))

    offer(match, -1, 1.0)
    while queue and len(tokens) < n:
        share, _, token, parent, node = heapq.heappop(queue)
        tokens.append(token)
        parents.append(parent)
        score -= share
        offer(node, len(tokens) - 1, -share)
    return TokenTree.from_parents(tokens, parents), score


def of_sources(sources: DraftSources, options: Options) -> SuffixDrafter:
    return SuffixDrafter(fixed_size(options["nodes"]))
