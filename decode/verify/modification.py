"""The modified targets of greedy block verification for the rest of a block (its appendix C, algorithm 5).

After n < g accepted tokens and the token Y, positions n+2..g of the old block are decoded with
M'(x | prefix) = max(r M(x) - S(x), 0), normalised, where r = M / S of the whole text since the old block's start and S
is the old drafter after that text; a text that it cannot draft has S = 0 and M' = M. The next block is verified against
M' and may add a modification of M': modifications nest, the oldest applies first.

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
same residual: this is M'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rescore.decode.verify.rule import Verdict
from rescore.decode.verify.sampling import Array, check_rows, ids, probabilities, residual

LARGEST = 1e300  # limit of a ratio: beyond it only M matters, and products must stay finite

Drafter = Callable[[tuple[int, ...]], Array]
"""Tokens since the block's start -> float [V], the distribution from which the block's drafter draws the next one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Modification:
    """The modification that one old block imposes on later positions.

    ratio    r > 0 of the text since the block's start
    left     number of positions still to modify, at least 1
    prefix   the text since the block's start
    drafter  the old block's drafter, for S after prefixes; it must return what the block was drawn from
    """

    ratio: float
    left: int
    prefix: tuple[int, ...]
    drafter: Drafter

    def __post_init__(self) -> None:
        if not (self.ratio > 0 and math.isfinite(self.ratio)):
            raise ValueError(f"ratio: expected a finite number above 0, got {self.ratio!r}")
        if self.left < 1:
            raise ValueError(
                f"left: expected at least 1 position, got {self.left!r}; drop a modification that has ended"
            )

    def drafted(self, p_row: Array) -> Array:
        """The drafter's S float64 [V] after the prefix, checked for the V, library and device of p_row [V]."""
        row = check_rows(f"drafter({self.prefix})", self.drafter(self.prefix)[None], 1, like=p_row[None])
        return probabilities(f"drafter({self.prefix})", row)[0]

    def advance(self, token: int, p_row: Array, s_row: Array) -> Modification | None:
        """The modification one token later; p_row, s_row: the target and the drafter after the prefix, float64 [V].

        None if no positions are left, if its drafter could not have drawn the token (M' = M from then on), or if the
        target could not have (a draft may hold such text, but it is never accepted).
        """
        m, s = float(p_row[token]), float(s_row[token])
        if self.left == 1 or m == 0 or s == 0:
            return None
        return replace(self, ratio=min(self.ratio * m / s, LARGEST), left=self.left - 1, prefix=(*self.prefix, token))


Stack = tuple[Modification, ...]
"""The current modifications, oldest first."""


def step(stack: Stack, p_row: Array, token: int | None = None) -> tuple[Array, Stack]:
    """Applies a stack to the model's p_row float64 [V]: the modified target float64 [V], and the stack after `token`
    (unchanged for None).
    """
    after = []
    for modification in stack:
        s_row = modification.drafted(p_row)
        later = modification if token is None else modification.advance(token, p_row, s_row)
        after += [later] if later is not None else []
        p_row = residual(p_row, s_row, modification.ratio)
    return p_row, tuple(after)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Modified:
    """The modified target along a draft, for verifying the next block.

    p       float64 [g+1, V], the modified target after each drafted token
    model   float64 [g+1, V], the model's own
    stacks  list of g+1, the modifications at each position
    draft   list of g token ids
    """

    p: Array
    model: Array
    stacks: list[Stack]
    draft: list[int]

    @classmethod
    def along(cls, stack: Stack, p: Array, draft: Any) -> Modified:
        """Computes the modified target along draft int [g] from the model's p [g+1, V], rows of sum 1."""
        model = probabilities("p", check_rows("p", p, len(draft) + 1))
        draft = ids("draft", draft, model.shape[-1])
        p, stacks = model * 1.0, [stack]  # a copy
        for i, token in enumerate([*draft, None]):
            p[i], after = step(stacks[i], model[i], token)
            stacks.append(after)
        return cls(p=p, model=model, stacks=stacks[:-1], draft=draft)

    def after(self, verdict: Verdict, q: Array, drafter: Drafter) -> Stack:
        """The modifications after a verdict on this draft against `p`.

        q [g, V] are the rows that the draft was drawn from; `drafter` gives q after other continuations.
        """
        n, size = verdict.length, len(self.draft)
        _, stack = step(self.stacks[n], self.model[n], verdict.token)
        if n == size:
            return stack
        q = probabilities("q", check_rows("q", q, size, like=self.p))
        new: Modification | None = Modification(ratio=1.0, left=size, prefix=(), drafter=drafter)
        for token, p_row, s_row in zip([*self.draft[:n], verdict.token], self.p, q):
            new = new and new.advance(token, p_row, s_row)
        return (*stack, new) if new else stack
