"""Greedy match: keeps drafted tokens as long as they are the target's own.

When: temperature 0; one draft, p drafts merged by prefix, or a tree. `Matching` is the same walk at temperature > 0.
Source: Stern et al. 2018, "Blockwise Parallel Decoding for Deep Autoregressive Models", section 3; Kim et al. 2024,
"Exploring and Improving Drafts in Blockwise Parallel Decoding", section 7.2, for p drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rescore.decode.verify.draft import ScoredDraft
from rescore.decode.verify.rule import Rule, Verdict
from rescore.decode.verify.sampling import ids
from rescore.lattice.tree import ROOT, TokenTree


def follow(tree: TokenTree, target: Callable[[int], int]) -> Verdict:
    """Follows the target's own tokens down the tree. target(node) is its token after `node`; -1 is the root token."""
    path: list[int] = []
    token = target(ROOT)
    while (node := tree.child(path[-1] if path else ROOT, token)) is not None:
        path.append(node)
        token = target(node)
    return Verdict(accepted=tuple(path), token=token)


def verify(truth: Any, tree: TokenTree) -> Verdict:
    """Returns the accepted nodes of a tree of n nodes, and the next token. truth int [1+n]: the target's argmax after
    the root token, after node 0, ...
    """
    truth = ids("truth", truth, 1 << 31)
    if len(truth) != tree.size + 1:
        raise ValueError(
            f"truth: expected 1 + n = {tree.size + 1} ids, after the root token and after each node, got {len(truth)}"
        )
    return follow(tree, lambda node: truth[1 + node])


class Greedy(Rule):
    """Keeps the longest path of the target's most probable tokens."""

    guarantee = "the target's greedy output, token for token (equal arithmetic)"
    greedy = True
    drawn = False

    def verify(self, scored: ScoredDraft) -> Verdict:
        return follow(scored.draft.tree, scored.best_token)
