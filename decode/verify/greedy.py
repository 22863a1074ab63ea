"""Greedy match: drafted tokens stay while they are the target's own.

When: temperature 0; one draft, p drafts verified as a batch, or a tree. `matching.py` brings the same walk to
temperature > 0. Source: Stern et al. 2018, "Blockwise Parallel Decoding for Deep Autoregressive Models", section 3; Kim
et al. 2024, "Exploring and Improving Drafts in Blockwise Parallel Decoding", section 7.2, for p drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rescore.decode.verify.checked import ids
from rescore.decode.verify.verdict import Verdict
from rescore.lattice.tree import ROOT, TokenTree

GUARANTEE = "the target's greedy output, token for token (equal arithmetic)"


def follow(tree: TokenTree, target: Callable[[int], int]) -> Verdict:
    """The longest path of the tree that the target writes itself; target(node) is its token after `node`, -1 the
    certain token.
    """
    children = {edge: node for node, edge in enumerate(zip(tree.parents.tolist(), tree.tokens.tolist()))}
    path: list[int] = []
    token = target(ROOT)
    while (node := children.get((path[-1] if path else ROOT, token))) is not None:
        path.append(node)
        token = target(node)
    return Verdict(accepted=tuple(path), token=token)


def verify(truth: Any, tree: TokenTree) -> Verdict:
    """Accepted nodes of a tree of n nodes and the next token; truth int [1+n]: the target's argmax after the certain
    token, after node 0, ...
    """
    truth = ids("truth", truth, 1 << 31)
    if len(truth) != tree.size + 1:
        raise ValueError(
            f"truth: expected 1 + n = {tree.size + 1} ids, after the certain token and after each node, "
            f"got {len(truth)}"
        )
    return follow(tree, lambda node: truth[1 + node])


def verify_drafts(truth: Any, drafts: Any) -> Verdict:
    """Accepted tokens of the best of p drafts and the next token; the first draft wins ties.

    drafts int [p, T], padding -1 at the end; truth int [p, T+1], truth[r, t] the argmax after the first t tokens of
    draft r.
    """
    truth, drafts = _host("truth", truth), _host("drafts", drafts)
    if drafts.ndim != 2 or len(drafts) < 1 or truth.shape != (len(drafts), drafts.shape[1] + 1):
        raise ValueError(
            f"expected drafts [p, T] with p >= 1 and truth [p, T + 1], got {list(drafts.shape)} and {list(truth.shape)}"
        )
    if (truth < 0).any():
        raise ValueError(
            f"truth: expected token ids, got {truth.min()}; the target has one after padding too, whatever it is"
        )
    # truth[r, t] is the target's own only while the draft is: the first difference ends it.
    lengths = np.cumprod(drafts == truth[:, :-1], axis=1).sum(axis=1)
    row = int(lengths.argmax())
    start, n = row * drafts.shape[1], int(lengths[row])
    return Verdict(accepted=tuple(range(start, start + n)), token=int(truth[row, n]))


def _host(name: str, values: Any) -> np.ndarray:
    array = values.cpu().numpy() if hasattr(values, "detach") else np.asarray(values)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: expected integers, got {array.dtype}")
    return array
