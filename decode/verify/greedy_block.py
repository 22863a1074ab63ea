"""Greedy block verification: accepts the most that any rule can in one block, but modifies the target for the rest of
the block.

When: one draft from a known q, temperature > 0, and a drafter that can evaluate q after any prefix. Over whole texts
the paper finds block verification ahead, since the modified target is harder to draft for; this rule is the optimum of
one block.
Source: Sun et al. 2025, "Block Verification Accelerates Speculative Decoding", appendix C (algorithms 4 to 6).

Let M^i and S^i be the joint probabilities of x_1..i since the block's start, r_i = M^i / S^i, and J_i =
sum_x max(S(x) - r_i M(x), 0).

A text follows the draft up to x_1..i with probability at most min(M^i, S^i), and the tests attain this bound. One-token
extensions of x_1..i account for sum_x min(M^{i+1}, S^{i+1}) of it, so the drafts that reach x_1..i and pass no longer
test have probability S^i J_i. If r_i >= 1, all of them must pass (h_i = 1). Otherwise M^i still lacks
sum_x max(M^{i+1} - S^{i+1}, 0) = S^i R_i, so h_i = R_i / J_i.

Texts that have left the draft must reach x_1..i with the remaining probability, D^i = max(M^i - S^i, 0). Texts that
leave at i continue with the residual max(r_i M - S, 0) / R_i. If r_i < 1, D^i = 0, and they contribute S^i J_i h_i =
S^i R_i, which gives D^{i+1}. If r_i >= 1, they contribute only S^i J_i, and D^i = S^i (r_i - 1) = S^i (R_i - J_i) have
left before. Together these are S^i R_i, so D^{i+1} results if and only if the texts that left before are drawn from the
same residual: this is M' in `modification.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rescore.decode.verify.chain import AcceptanceLaw, Chain, longest, tests_and_draw
from rescore.decode.verify.modification import LARGEST, Modified, Stack
from rescore.decode.verify.rule import Verdict, Verifier
from rescore.decode.verify.sampling import Array

if TYPE_CHECKING:
    from rescore.decode.verify.scored_draft import ScoredDraft

GUARANTEE = (
    "the emitted tokens have the target's distribution if the rest of the block is decoded with the modified target "
    "(modification.py); in one block no rule accepts more in expectation"
)


def law(p: Array, q: Array, draft: Any) -> AcceptanceLaw:
    """Returns h_i, the probability that the test of X_1..i succeeds, and the residuals of r_i M - S.

    r_0 = 1, r_i = r_{i-1} M(X_i) / S(X_i); h_i = min(1, R_i / J_i) for i < g (1 where J_i = 0), h_g = min(1, r_g).
    J_i is computed as R_i + 1 - r_i.
    p [g+1, V], q [g, V], rows of sum 1, numpy or torch floats; draft int [g] in [0, V).
    """
    chain = Chain.checked(p, q, draft)
    ratio = [1.0]
    for m, s in zip(chain.m, chain.s):
        ratio.append(min(ratio[-1] * m / s, LARGEST))
    return chain.block_law(ratio)


def verify(p: Array, q: Array, draft: Any, uniforms: Sequence[float] | Array) -> Verdict:
    """Returns the accepted tokens and the next one. p, q, draft as in `law`; uniforms [g+1] in [0, 1), the last for the
    next token.

    p is the target as modified by earlier blocks; `modification.Modified` computes it, and the modifications after
    this block.
    """
    found = law(p, q, draft)
    tests, draw = tests_and_draw(uniforms, found.chain.size)
    return found.verdict(longest(tests, found.acceptance), draw)


class GreedyBlockVerification:
    """Accepts the most that one block can; the block's remaining positions use a modified target (appendix C)."""

    guarantee = GUARANTEE
    greedy = False
    drawn = True

    def open(self) -> Verifier:
        return _Modifying()


class _Modifying:
    """One request and its current modifications."""

    def __init__(self) -> None:
        self.stack: Stack = ()

    def verify(self, scored: ScoredDraft) -> Verdict:
        p, q, draft, uniforms = scored.chain()
        target = Modified.along(self.stack, p, draft)
        verdict = verify(target.p, q, draft, uniforms)
        # Also for an empty draft, which has no distribution: earlier blocks' modifications advance.
        self.stack = target.after(verdict, q, lambda text: scored.distribution.after(text))
        return verdict
