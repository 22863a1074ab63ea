"""Sample matching: the target draws its tokens as without a draft, and drafted tokens that equal them are kept.

When: temperature > 0 and drafts that are not samples of a known q: the best tree, the p best paths, an n-gram draft.
The draft never changes the text: each position's own random number draws its token, as in
`rescore.decode.verify.sampling`.
Source: Miao et al. 2024, "SpecInfer", as naive sampling, the baseline of multi-draft verification.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rescore.decode.verify.greedy import follow
from rescore.decode.verify.rule import StatelessRule, Verdict
from rescore.decode.verify.sampling import Array, numbers, probabilities, sample, shaped, uniform
from rescore.lattice.tree import TokenTree

if TYPE_CHECKING:
    from rescore.decode.verify.scored_draft import ScoredDraft

GUARANTEE = (
    "the emitted tokens have the target's distribution, and are the same tokens whatever is drafted (equal arithmetic)"
)


def verify(p: Array, tree: TokenTree, uniforms: Sequence[float] | Array) -> Verdict:
    """Returns the accepted nodes of a tree of n nodes, and the next token.

    p [1+n, V] target after the root token and after each node, rows of sum 1, numpy or torch floats; uniforms [1 +
    depth] in [0, 1), one per position up to the tree's depth: entry d draws the token after d drafted ones from p's
    row.
    """
    shaped("p", p, tree.size + 1)
    deepest = int(tree.depths.max(initial=0))
    draws = numbers(
        "uniforms", uniforms, deepest + 1, "one per position, from the root token to after the deepest node"
    )

    def target(node: int) -> int:
        row = probabilities("p", p[1 + node : 2 + node], first=1 + node)[0]
        return int(sample(row, draws[tree.depths[node] if node >= 0 else 0]))

    return follow(tree, target)


class Matching(StatelessRule):
    """Keeps the longest path of tokens drawn from the target, each with its position's own random number."""

    guarantee = GUARANTEE
    drawn = False

    def verify(self, scored: ScoredDraft) -> Verdict:
        depths = scored.draft.tree.depths
        # Tokens past max_tokens are discarded and need no uniform.
        own = np.append(uniform(scored.seeds), 0.0)

        def drawn(node: int) -> int:
            return int(sample(scored.probabilities([node])[0], float(own[depths[node] if node >= 0 else 0])))

        return follow(scored.draft.tree, drawn)
