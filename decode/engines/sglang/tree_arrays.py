"""Packs trees into the arrays of SGLang's n-gram worker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.tree import TokenTree


def tree_arrays(
    trees: Sequence[TokenTree], roots: Sequence[int], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns tokens int64 [B n] and mask int64 [B n n], both flat.

    Node 0 of each request is the root token, the last one committed. The nodes of its tree follow, parents before
    children; padding is token 0 under the root. mask[b, i, j] is 1 if j is i or an ancestor of i. ValueError for a tree
    of more than n - 1 nodes.
    """
    tokens = np.zeros((len(trees), n), np.int64)
    mask = np.zeros((len(trees), n, n), np.int64)
    mask[:, :, 0] = 1
    mask[:, range(n), range(n)] = 1
    for row, tree in enumerate(trees):
        if tree.size >= n:
            raise ValueError(f"trees[{row}]: expected at most {n - 1} nodes beside the root token, got {tree.size}")
        tokens[row, 0] = roots[row]
        tokens[row, 1 : 1 + tree.size] = tree.tokens
        mask[row, 1 : 1 + tree.size, 1 : 1 + tree.size] = tree.ancestor_mask()
    return tokens.ravel(), mask.ravel()
