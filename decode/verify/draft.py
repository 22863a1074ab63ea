"""A draft to be verified, and the distribution that it was drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import TokenTree

if TYPE_CHECKING:
    from torch import Tensor


class DraftDistribution(Protocol):
    """The distribution q that drafts were drawn from."""

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """q(. | node's path), float64 [m, V], for nodes of the draft's tree; -1 is the root token."""

    def after(self, tokens: Sequence[int]) -> Tensor:
        """q(. | tokens behind the certain one), float64 [V], for prefixes that it could draft, drafted or not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A tree to be verified; how it was drawn, if it was.

    tree          one chain, several merged by prefix, or a tree of the most probable prefixes; it may be empty
    distribution  None for a deterministic draft
    draws         for a drawn one, the node of every draw, in order, each node's draws behind its parent's first: a
                  chain's are 0, 1, ..; a token drawn twice after the same prefix is one node that occurs twice
    """

    tree: TokenTree
    distribution: DraftDistribution | None = None
    draws: tuple[int, ...] = ()

    __repr__ = short_repr
