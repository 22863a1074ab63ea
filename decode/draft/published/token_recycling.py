"""Token Recycling (Luo et al. 2024)."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.published.baseline import Method
from rescore.decode.models.draft_step import TOP, LastPass, Read
from rescore.lattice.tree import TokenTree

# Children of each node of Token Recycling's published tree, by the ranks along its path; nodes not listed have none.
CHILDREN = {
    **{"": 8, "0": 8, "1": 4, "2": 3, "3": 2, "4": 1, "5": 1, "6": 1, "7": 1},
    **{"00": 8, "01": 3, "02": 2, "03": 1, "04": 1, "05": 1, "06": 1, "07": 1, "10": 2, "11": 1},
    **{"20": 1, "30": 1, "40": 1, "50": 1},
    **{"000": 5, "001": 2, "002": 1, "003": 1, "004": 1, "010": 1, "020": 1, "100": 1, "200": 1, "300": 1},
    **{"0000": 3, "0001": 1, "0002": 1, "0010": 1, "0100": 1, "1000": 1, "00000": 2, "00010": 1},
}


class TokenRecycling(Method):
    """Token Recycling: a tree of the target's latest predictions after each token of the vocabulary.

    Luo et al. 2024, "Turning Trash into Treasure" (arXiv 2408.08696). An adjacency matrix, here a dictionary keyed by
    token, holds for every token the most probable tokens that the target predicted when it last read the token,
    accepted or not. It fills a tree of fixed shape: the published one, of 80 nodes and a root (version 2.2.2 of the
    authors' code). `best_tree` instead takes the n nodes with the greatest products of predicted probabilities.
    """

    published, predictions = None, TOP

    def __init__(self) -> None:
        self._after: dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]] = {}

    def draft(self, history: NDArray[np.int32], n: int | None, read: Read | None, last: LastPass | None) -> TokenTree:
        assert read is not None
        self.read(read)
        return self.best_tree(int(history[-1]), n) if n else self.static_tree(int(history[-1]))

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
