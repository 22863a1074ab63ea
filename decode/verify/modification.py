"""The targets that greedy block verification leaves behind for the rest of a block (its appendix C, algorithm 5).

After n < g accepted tokens and the token Y, positions n+2..g of the old block are decoded with
M'(x | prefix) = max(r M(x) - S(x), 0), normalised, where r = M / S of the whole text since the old block's start and S
is the old drafter after that text; a text that it cannot draft has S = 0 and M' = M. The next block is verified against
M', and may itself leave a modification of M' behind: they nest, the oldest applies first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rescore.decode.verify.checked import Array, ids, probabilities, shaped
from rescore.decode.verify.residual import residual
from rescore.decode.verify.rule import Verdict

LARGEST = 1e300  # of a ratio: beyond it only M counts, and products must stay finite

Drafter = Callable[[tuple[int, ...]], Array]
"""Tokens since the block's start -> float [V], the law from which the block's drafter draws the next one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Modification:
    """One old block's claim on the positions to come.

    ratio    r > 0 of the text since the block's start
    left     positions, at least 1, whose target is still modified
    prefix   the text since the block's start
    drafter  the old block's, asked for S after prefixes; it must answer as it drew the block
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
                f"left: expected at least 1 position, got {self.left!r}; a modification that has ended is dropped"
            )

    def drafted(self, p_row: Array) -> Array:
        """S float64 [V] after the prefix, from the drafter; p_row [V] says of which V, library and device
        it must be.
        """
        row = shaped(f"drafter({self.prefix})", self.drafter(self.prefix)[None], 1, like=p_row[None])
        return probabilities(f"drafter({self.prefix})", row)[0]

    def apply(self, p_row: Array, s_row: Array) -> Array:
        """M' float64 [V] from the target p_row and the drafter's s_row after the prefix, both float64 [V]."""
        return residual(p_row, s_row, self.ratio)

    def advance(self, token: int, p_row: Array, s_row: Array) -> Modification | None:
        """The modification one token later; p_row, s_row as `apply` had them.

        None when its positions are over, when its drafter could not have drawn the token (M' = M from there on), or
        when the target could not have (a draft may hold such text, but it is never accepted).
        """
        m, s = float(p_row[token]), float(s_row[token])
        if self.left == 1 or m == 0 or s == 0:
            return None
        return replace(self, ratio=min(self.ratio * m / s, LARGEST), left=self.left - 1, prefix=(*self.prefix, token))


Stack = tuple[Modification, ...]
"""The modifications in force, oldest first."""


def step(stack: Stack, p_row: Array, token: int | None = None) -> tuple[Array, Stack]:
    """The target in force float64 [V] where the model says p_row float64 [V], and the stack after `token` (None: as it
    was).
    """
    after = []
    for modification in stack:
        s_row = modification.drafted(p_row)
        later = modification if token is None else modification.advance(token, p_row, s_row)
        after += [later] if later is not None else []
        p_row = modification.apply(p_row, s_row)
    return p_row, tuple(after)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Modified:
    """The target in force along a draft: what the next block is verified against.

    p       float64 [g+1, V], the target in force after each drafted token
    model   float64 [g+1, V], the model's own
    stacks  list of g+1, the modifications in force
    draft   list of g token ids
    """

    p: Array
    model: Array
    stacks: list[Stack]
    draft: list[int]

    @classmethod
    def along(cls, stack: Stack, p: Array, draft: Any) -> Modified:
        """The target in force along draft int [g], where the model says p [g+1, V], rows of sum 1."""
        model = probabilities("p", shaped("p", p, len(draft) + 1))
        draft = ids("draft", draft, model.shape[-1])
        p, stacks = model * 1.0, [stack]  # a copy
        for i, token in enumerate([*draft, None]):
            p[i], after = step(stacks[i], model[i], token)
            stacks.append(after)
        return cls(p=p, model=model, stacks=stacks[:-1], draft=draft)

    def after(self, verdict: Verdict, q: Array, drafter: Drafter) -> Stack:
        """The modifications in force after a verdict on this draft against `p`.

        q [g, V] are the rows that the draft was drawn from; `drafter` answers for other continuations of its start.
        """
        n, size = verdict.length, len(self.draft)
        _, stack = step(self.stacks[n], self.model[n], verdict.token)
        if n == size:
            return stack
        q = probabilities("q", shaped("q", q, size, like=self.p))
        new: Modification | None = Modification(ratio=1.0, left=size, prefix=(), drafter=drafter)
        for token, p_row, s_row in zip([*self.draft[:n], verdict.token], self.p, q):
            new = new and new.advance(token, p_row, s_row)
        return (*stack, new) if new else stack
