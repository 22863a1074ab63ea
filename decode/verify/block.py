"""Block verification: tests the drafted tokens jointly and keeps the longest prefix that passes.

When: one draft, each token drawn from a known q, temperature > 0; the default there.
Source: Sun et al. 2025, "Block Verification Accelerates Speculative Decoding", section 3 (algorithm 2).

P_i, the probability that X_1..i is kept, is at most min(1, M/S) of the whole prefix. The surplus of one token (M > S)
makes up for a later deficit, unless it was clipped at 1. No rule that starts every pass afresh accepts more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rescore.decode.verify.chain import AcceptanceLaw, Chain, longest, tests_and_draw
from rescore.decode.verify.rule import StatelessRule, Verdict
from rescore.decode.verify.sampling import Array

if TYPE_CHECKING:
    from rescore.decode.verify.scored_draft import ScoredDraft

GUARANTEE = (
    "the emitted tokens have the target's distribution; no fewer are accepted in expectation than by token verification"
)


def law(p: Array, q: Array, draft: Any) -> AcceptanceLaw:
    """Returns h_i, the probability that the test of X_1..i succeeds, and the residuals of P_i M - S.

    P_0 = 1, P_i = min(P_{i-1} M(X_i) / S(X_i), 1); R_i = sum_x max(P_i M(x) - S(x), 0); h_i = R_i / (R_i + 1 - P_i)
    for i < g, h_g = P_g. p [g+1, V], q [g, V], rows of sum 1, numpy or torch floats; draft int [g] in [0, V).
    """
    chain = Chain.checked(p, q, draft)
    kept = [1.0]
    for m, s in zip(chain.m, chain.s):
        kept.append(min(kept[-1] * m / s, 1.0))
    return chain.block_law(kept)


def verify(p: Array, q: Array, draft: Any, uniforms: Sequence[float] | Array) -> Verdict:
    """Returns the accepted tokens and the next one. p, q, draft as in `law`; uniforms [g+1] in [0, 1), the last for the
    next token.
    """
    found = law(p, q, draft)
    tests, draw = tests_and_draw(uniforms, found.chain.size)
    return found.verdict(longest(tests, found.acceptance), draw)


class BlockVerification(StatelessRule):
    """Tests the drawn tokens jointly (Sun et al. 2025); the default for drawn chains."""

    guarantee = GUARANTEE
    drawn = True

    def verify(self, scored: ScoredDraft) -> Verdict:
        return verify(*scored.chain())
