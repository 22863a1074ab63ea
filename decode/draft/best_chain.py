"""The best chain of a tree, for engines and targets that read no trees."""

from __future__ import annotations

import numpy as np

from rescore.lattice.tree import ROOT, TokenTree

NODES = 64  # nodes of the trees from which chains are selected


def best_chain(tree: TokenTree, cost: float = 0.0, *, most: int | None = None) -> TokenTree:
    """The `best_path` of a tree, as a chain."""
    path = best_path(tree, cost, most=most)
    parents = np.arange(-1, len(path) - 1, dtype=np.int32)
    return TokenTree.trusted(tree.tokens[path], parents, tree.depths[path], tree.logq[path])


def best_path(tree: TokenTree, cost: float = 0.0, *, most: int | None = None) -> list[int]:
    """The nodes of the root-to-leaf path, at most `most`, that maximises expected accepted length - cost * length.

    A node's q is the probability that the draft is accepted up to it, so a path's expected accepted length is the sum
    of its nodes' q. If the tree holds all prefixes of q >= cost, the result is optimal over the whole vocabulary: no
    other prefix can pay. cost: of verifying one drafted token, relative to a token of text, at least 0. Nodes whose
    q is below it are left out.
    """
    worth = np.exp(tree.logq.astype(np.float64)) - cost
    if most is not None:
        worth[tree.depths > most] = -np.inf
    values, parents = worth.tolist(), tree.parents.tolist()
    best_child = [ROOT] * (len(values) + 1)  # the last entry is the root's
    best_value = [0.0] * (len(values) + 1)
    for node in range(len(values) - 1, -1, -1):
        value = values[node] + best_value[node]
        parent = parents[node]
        if value > best_value[parent] or (value == best_value[parent] and value > 0):  # of equals, the first node
            best_child[parent], best_value[parent] = node, value
    chain, node = [], best_child[ROOT]
    while node != ROOT:
        chain.append(node)
        node = best_child[node]
    return chain
