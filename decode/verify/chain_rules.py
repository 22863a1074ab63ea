"""Rules for one chain whose tokens were drawn from a known q: token, block and greedy block verification.

When: temperature > 0 and drafts drawn from q. M is the target's distribution, S the drafter's, g the chain's length.
Each rule is two lists of numbers (`AcceptanceLaw`): the acceptance probability of each length, and the factor of M in
the residual max(factor M - S, 0) that the next token is drawn from.

Sources: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1, and Chen et
al. 2023, "Accelerating Large Language Model Decoding with Speculative Sampling", algorithm 2, for token verification;
Sun et al. 2025, "Block Verification Accelerates Speculative Decoding", for the others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.verify.draft import ScoredDraft
from rescore.decode.verify.modification import LARGEST, Modified, Stack
from rescore.decode.verify.rule import Rule, Verdict
from rescore.decode.verify.sampling import Array, check_rows, ids, numbers, probabilities, residual, sample


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chain:
    """Draft X_1..X_g with the target's M(.|X_1..i) = p[i], i = 0..g, and the drafter's S(.|X_1..i) = q[i], i < g.

    p float64 [g+1, V], q float64 [g, V]; draft int [g] in [0, V); m, s [g]: M and S of each drafted token, s > 0.
    """

    p: Array
    q: Array
    draft: list[int]
    m: list[float]
    s: list[float]

    @classmethod
    def checked(cls, p: Array, q: Array, draft: Any) -> Chain:
        """Checks p [g+1, V] and q [g, V], floats of any width, and draft int [g]; raises ValueError or TypeError."""
        size = len(draft)
        p = probabilities("p", check_rows("p", p, size + 1))
        q = probabilities("q", check_rows("q", q, size, like=p))
        draft = ids("draft", draft, p.shape[-1])
        positions = list(range(size))
        m, s = p[positions, draft].tolist(), q[positions, draft].tolist()
        if 0 in s:
            i = s.index(0)
            raise ValueError(
                f"q[{i}, {draft[i]}] = 0 for draft[{i}] = {draft[i]}: expected a token that the drafter could have "
                "drawn; give the distribution that the draft was drawn from, after its temperature and truncation"
            )
        return cls(p=p, q=q, draft=draft, m=m, s=s)

    @property
    def size(self) -> int:
        """g, the number of drafted tokens."""
        return len(self.draft)

    def block_law(self, scale: list[float]) -> AcceptanceLaw:
        """The law of testing all prefixes, where X_1..i may be kept with probability min(1, scale_i); scale [g+1].

        h_g = min(1, scale_g); for i < g, h_i = R_i / (R_i + 1 - scale_i) with R_i = sum_x max(scale_i M(x) - S(x), 0),
        or 1 if scale_i >= 1. (If both R_i and 1 - scale_i are 0, every X_{i+1} is kept too.)
        """
        tests = [self._test(i, scale[i]) for i in range(1, self.size)] + [min(1.0, last) for last in scale[1:][-1:]]
        return AcceptanceLaw(chain=self, acceptance=np.array(tests), scale=np.array(scale))

    def _test(self, i: int, scale: float) -> float:
        if not 0 < scale < 1:
            return float(scale > 0)
        surplus = float((scale * self.p[i] - self.q[i]).clip(0).sum())
        return surplus / (surplus + 1 - scale)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AcceptanceLaw:
    """The exact law of a rule, given one draft.

    acceptance  h float64 [g]: h[i] is the probability that the test of X_{i+1} succeeds
    scale       float64 [g+1]: after n accepted tokens, the next one is drawn from max(scale[n] M - S, 0), normalised
    """

    chain: Chain
    acceptance: NDArray[np.float64]
    scale: NDArray[np.float64]

    def next_token(self, accepted: int) -> Array:
        """Distribution float64 [V] of the token after `accepted` tokens, 0..g; M itself past the draft."""
        if accepted == self.chain.size:
            return self.chain.p[accepted]
        return residual(self.chain.p[accepted], self.chain.q[accepted], float(self.scale[accepted]))


class ChainRule(Rule):
    """A rule as its law, a pure function of numpy arrays or torch tensors."""

    drawn = True

    @abstractmethod
    def law(self, p: Array, q: Array, draft: Any) -> AcceptanceLaw:
        """p [g+1, V] target, q [g, V] drafter, floats, rows of sum 1; draft int [g] in [0, V)."""

    def length(self, passed: Sequence[bool]) -> int:
        """The number of accepted tokens, from which of the g tests succeeded: the longest prefix that did."""
        return max((i for i, ok in enumerate(passed, 1) if ok), default=0)

    def verdict(self, p: Array, q: Array, draft: Any, uniforms: Sequence[float] | Array) -> Verdict:
        """The accepted tokens and the next one. uniforms [g+1] in [0, 1): one for each test, the last for that token.

        A test succeeds if its number is below h, so with probability exactly h: never for h = 0, always for h = 1.
        """
        law = self.law(p, q, draft)
        *tests, draw = numbers("uniforms", uniforms, len(draft) + 1, "one per drafted token and one for the next token")
        accepted = self.length([u < h for u, h in zip(tests, law.acceptance)])
        return Verdict(accepted=tuple(range(accepted)), token=int(sample(law.next_token(accepted), draw)))

    def verify(self, scored: ScoredDraft) -> Verdict:
        return self.verdict(*scored.chain())


class TokenVerification(ChainRule):
    """Tests the drawn tokens one by one, up to the first that fails (Leviathan et al. 2023, Chen et al. 2023).

    h_i = min(1, M(X_i) / S(X_i)) is the acceptance probability of X_i after X_1..i-1.
    """

    guarantee = "the emitted tokens have the target's distribution"

    def law(self, p: Array, q: Array, draft: Any) -> AcceptanceLaw:
        chain = Chain.checked(p, q, draft)
        acceptance = [min(1.0, m / s) for m, s in zip(chain.m, chain.s)]
        return AcceptanceLaw(chain=chain, acceptance=np.array(acceptance), scale=np.ones(chain.size + 1))

    def length(self, passed: Sequence[bool]) -> int:
        return [*passed, False].index(False)


class BlockVerification(ChainRule):
    """Tests the drawn tokens jointly and keeps the longest prefix that passes (Sun et al. 2025, section 3, algorithm
    2); the default for drawn chains.

    P_0 = 1, P_i = min(P_{i-1} M(X_i) / S(X_i), 1); R_i = sum_x max(P_i M(x) - S(x), 0); h_i = R_i / (R_i + 1 - P_i)
    for i < g, h_g = P_g. P_i, the probability that X_1..i is kept, is at most min(1, M/S) of the whole prefix. The
    surplus of one token (M > S) makes up for a later deficit, unless it was clipped at 1. No rule that starts every
    pass afresh accepts more.
    """

    guarantee = (
        "the emitted tokens have the target's distribution; no fewer are accepted in expectation than by token "
        "verification"
    )

    def law(self, p: Array, q: Array, draft: Any) -> AcceptanceLaw:
        chain = Chain.checked(p, q, draft)
        kept = [1.0]
        for m, s in zip(chain.m, chain.s):
            kept.append(min(kept[-1] * m / s, 1.0))
        return chain.block_law(kept)


class GreedyBlockVerification(ChainRule):
    """Accepts the most that any rule can in one block, but modifies the target for the rest of the block (Sun et al.
    2025, appendix C, algorithms 4 to 6).

    The drafter must evaluate q after any prefix. Over whole texts the paper finds block verification ahead, since the
    modified target is harder to draft for; this rule is the optimum of one block. `law` takes the target as modified by
    earlier blocks (`modification.py`, which also derives why).

    r_0 = 1, r_i = r_{i-1} M(X_i) / S(X_i); h_i = min(1, R_i / J_i) for i < g (1 where J_i = 0), h_g = min(1, r_g), with
    the residuals of r_i M - S. J_i is computed as R_i + 1 - r_i.
    """

    guarantee = (
        "the emitted tokens have the target's distribution if the rest of the block is decoded with the modified "
        "target (modification.py); in one block no rule accepts more in expectation"
    )

    def __init__(self) -> None:
        self._stack: Stack = ()  # the current modifications of one request

    def law(self, p: Array, q: Array, draft: Any) -> AcceptanceLaw:
        chain = Chain.checked(p, q, draft)
        ratio = [1.0]
        for m, s in zip(chain.m, chain.s):
            ratio.append(min(ratio[-1] * m / s, LARGEST))
        return chain.block_law(ratio)

    def open(self) -> Rule:
        return GreedyBlockVerification()

    def verify(self, scored: ScoredDraft) -> Verdict:
        p, q, draft, uniforms = scored.chain()
        target = Modified.along(self._stack, p, draft)
        verdict = self.verdict(target.p, q, draft, uniforms)
        # Also for an empty draft, which has no distribution: earlier blocks' modifications advance.
        self._stack = target.after(verdict, q, lambda text: scored.distribution.after(text).cpu())
        return verdict
