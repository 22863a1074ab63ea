"""What the decode loop asks of whoever drafts, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.heads import Step
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree


class Law(Protocol):
    """The distribution q that drafts were drawn from."""

    def rows(self, nodes: Sequence[int]) -> Tensor:
        """q(. | node's path), float64 [m, V], for nodes of the draft's tree; -1 is the certain token."""

    def after(self, tokens: Sequence[int]) -> Tensor:
        """q(. | tokens behind the certain one), float64 [V], for prefixes that it could draft, drafted or not."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draft:
    """A tree to be verified; how it was drawn, if it was.

    tree   one chain, several merged by prefix, or a tree of the most probable prefixes; it may be empty
    law    None for a deterministic draft
    draws  for a drawn one, the node of every draw, in order, each node's draws behind its parent's first: a chain's are
           0, 1, ..; a token drawn twice after the same prefix is one node that occurs twice
    """

    tree: TokenTree
    law: Law | None = None
    draws: tuple[int, ...] = ()


EMPTY = TokenTree.from_drafts(np.empty((1, 0), np.int32))  # of a step that drafts nothing


class DrafterSession(Protocol):
    """A drafter at work on the requests of one call."""

    def propose(self, step: Step) -> list[Draft]:
        """One draft for each of the step's B requests, no deeper than its room."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these requests alone."""


class Drafter(Protocol):
    """drawn: how many drafts it draws from a q for each request; 0 if they are deterministic."""

    drawn: int

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        """prompts: as the target was given them. shaping: what makes the target's logits its distribution."""
