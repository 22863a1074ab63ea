"""Token Recycling: a tree of the target's latest predictions after each token of the vocabulary.

Luo et al. 2024, "Turning Trash into Treasure" (arXiv 2408.08696). An adjacency matrix holds, for every token, the k
most probable tokens that the target predicted when it last read the token, accepted or not. It fills a tree of fixed
shape: the published one, of 80 nodes and a root (version 2.2.2 of the authors' code). `best_tree` instead takes the n
nodes with the greatest products of predicted probabilities.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Proposed
from rescore.decode.draft.sources import DraftSources, Options, fixed_size
from rescore.decode.models.draft_step import DraftStep, Read
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree, Trees

TOP = 8  # k

# Children of each node of the published tree, by the ranks along its path; nodes not listed have none.
CHILDREN = {
    **{"": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1},
    **{"00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1, "10": 2, "11": 1},
    **{"20": 1, "30": 1, "40": 1, "50": 1},
    **{"000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1, "300": 1},
    **{"0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1, "00000": 2, "00010": 1},
}


class TokenRecyclingDrafter:
    """Drafts trees of the latest predictions: the published one, or with `nodes` the best of that size."""

    drawn = 0

    def __init__(self, nodes: int | None = None):
        self.nodes = nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _RecyclingSession:
        return _RecyclingSession(self.nodes, len(prompts))


class _RecyclingSession:
    def __init__(self, nodes: int | None, requests: int):
        self._nodes, self._matrices = nodes, [TokenRecycling() for _ in range(requests)]

    def propose(self, step: DraftStep) -> Proposed:
        assert step.predictions is not None, "whoever runs a drafter gives it the predictions"
        n = self._nodes and (step.nodes or self._nodes)
        trees = []
        for request, read, history in zip(step.requests, step.predictions(TOP), step.histories):
            matrix, root = self._matrices[request], int(history[-1])
            matrix.read(read)
            trees.append(matrix.best_tree(root, n) if n else matrix.static_tree(root))
        return Trees.joined(trees)

    def select(self, rows: Sequence[int]) -> None:
        self._matrices = [self._matrices[row] for row in rows]


class TokenRecycling:
    """The adjacency matrix of one request, as a dictionary keyed by token."""

    def __init__(self) -> None:
        self._after: dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]] = {}

    def read(self, read: Read) -> None:
        """Records what is known of a pass."""
        for token, ids, p in zip(*read):
            if ids[0] >= 0:
                self.see(int(token), ids, p)

    def see(self, token: int, ids: NDArray[np.int32], p: NDArray[np.float32]) -> None:
        """Records the prediction after a token: ids [k] with probabilities p [k], most probable first."""
        self._after[token] = ids[:TOP], p[:TOP]

    def after(self, token: int) -> list[int]:
        """The latest predictions after a token, most probable first; none if it was never read."""
        return self._after[token][0].tolist() if token in self._after else []

    def static_tree(self, root: int) -> TokenTree:
        """The published tree after a token; nodes for which there is no prediction are left out."""
        tokens: list[int] = []
        parents: list[int] = []
        layer = [("", root, -1)]
        while layer:
            below = []
            for path, token, node in layer:
                for rank, child in enumerate(self.after(token)[: CHILDREN.get(path, 0)]):
                    below.append((f"{path}{rank}", child, len(tokens)))
                    tokens.append(child)
                    parents.append(node)
            layer = below
        return TokenTree.from_parents(tokens, parents)

    def best_tree(self, root: int, n: int) -> TokenTree:
        """The n most probable prefixes, if a token depended on the previous one alone."""
        tokens: list[int] = []
        parents: list[int] = []
        queue: list[tuple[float, int, int, int]] = []  # (-probability, order, token, parent)

        def offer(token: int, node: int, p: float) -> None:
            for child, share in zip(*self._after.get(token, ((), ()))):
                heapq.heappush(queue, (-p * float(share), len(queue), int(child), node))

        offer(root, -1, 1.0)
        while queue and len(tokens) < n:
            cost, _, token, parent = heapq.heappop(queue)
            tokens.append(token)
            parents.append(parent)
            offer(token, len(tokens) - 1, -cost)
        return TokenTree.from_parents(tokens, parents)


def of_sources(sources: DraftSources, options: Options) -> TokenRecyclingDrafter:
    return TokenRecyclingDrafter(options["nodes"] and fixed_size(options["nodes"]))
