"""A draft to verify, and the distribution that it was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import TokenTree

if TYPE_CHECKING:
    from torch import Tensor


class DraftDistribution(Protocol):
    """The draft distribution q."""

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """q(. | node's path), float64 [m, V], for nodes of the draft's tree; -1 is the root token."""

    def after(self, tokens: Sequence[int]) -> Tensor:
        """q(. | tokens after the root token), float64 [V], for prefixes that could be drafted, whether they were or
        not.
        """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A tree to verify and, for drawn drafts, how it was drawn.

    tree          one chain, several merged by prefix, or the most probable prefixes; may be empty
    distribution  None for a deterministic draft
    draws         for drawn drafts, the node of every draw, in order, with a node's draws after its parent's first one.
                  A chain's are 0, 1, ..; a token drawn twice after the same prefix is one node that occurs twice
    rested        whether it is empty because a plain pass is expected to be faster
    """

    tree: TokenTree
    distribution: DraftDistribution | None = None
    draws: tuple[int, ...] = ()
    rested: bool = False

    __repr__ = short_repr
