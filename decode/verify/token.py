"""Token verification: tests the drafted tokens one by one, up to the first that fails.

When: one draft, each token drawn from a known q, temperature > 0. `block.py` keeps at least as much of the same draft.
Source: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1; Chen et al.
2023, "Accelerating Large Language Model Decoding with Speculative Sampling", algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore.decode.verify.chain import AcceptanceLaw, Chain, tests_and_draw
from rescore.decode.verify.rule import StatelessRule, Verdict
from rescore.decode.verify.sampling import Array

if TYPE_CHECKING:
    from rescore.decode.verify.scored_draft import ScoredDraft

GUARANTEE = "the emitted tokens have the target's distribution"


def law(p: Array, q: Array, draft: Any) -> AcceptanceLaw:
    """Returns h_i = min(1, M(X_i) / S(X_i)), the acceptance probability of X_i after X_1..i-1; residuals of M - S.

    p [g+1, V] target, q [g, V] drafter, rows of sum 1, numpy or torch floats; draft int [g] in [0, V).
    """
    chain = Chain.checked(p, q, draft)
    acceptance = [min(1.0, m / s) for m, s in zip(chain.m, chain.s)]
    return AcceptanceLaw(chain=chain, acceptance=np.array(acceptance), scale=np.ones(chain.size + 1))


def verify(p: Array, q: Array, draft: Any, uniforms: Sequence[float] | Array) -> Verdict:
    """Returns the accepted tokens and the next one. p, q, draft as in `law`; uniforms [g+1] in [0, 1), the last for the
    next token.
    """
    found = law(p, q, draft)
    tests, draw = tests_and_draw(uniforms, found.chain.size)
    failed = (i for i, (u, h) in enumerate(zip(tests, found.acceptance)) if u >= h)
    return found.verdict(next(failed, found.chain.size), draw)


class TokenVerification(StatelessRule):
    """Tests the drawn tokens one by one (Leviathan et al. 2023, Chen et al. 2023)."""

    guarantee = GUARANTEE
    drawn = True

    def verify(self, scored: ScoredDraft) -> Verdict:
        return verify(*scored.chain())
