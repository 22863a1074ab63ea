"""A drafted chain with both models' distributions, and the exact acceptance law of a rule on it.

Token, block and greedy block verification differ only in two lists of numbers: the acceptance probability of each
length, and the factor of the target in the residual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.verify.residual import residual
from rescore.decode.verify.rule import Verdict
from rescore.decode.verify.sampling import Array, ids, numbers, probabilities, sample, shaped


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
        p = probabilities("p", shaped("p", p, size + 1))
        q = probabilities("q", shaped("q", q, size, like=p))
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

    def verdict(self, accepted: int, uniform: float) -> Verdict:
        """The first `accepted` tokens of the chain, and the next one, drawn with `uniform`."""
        return Verdict(accepted=tuple(range(accepted)), token=int(sample(self.next_token(accepted), uniform)))


def tests_and_draw(uniforms: Sequence[float] | Array, size: int) -> tuple[list[float], float]:
    """Splits uniforms [g+1] in [0, 1) into the g numbers for a rule's tests and the one that draws the next token."""
    *tests, draw = numbers("uniforms", uniforms, size + 1, "one per drafted token and one for the next token")
    return tests, draw


def longest(tests: list[float], acceptance: NDArray[np.float64]) -> int:
    """The largest i whose number is below h_i; 0 if none.

    Numbers are in [0, 1), so u < h has probability exactly h: never for h = 0, always for h = 1.
    """
    return max((i for i, (u, h) in enumerate(zip(tests, acceptance), 1) if u < h), default=0)
