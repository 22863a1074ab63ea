"""What the decode loop asks of whoever drafts, and what it gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.heads import DraftStep
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

EMPTY = TokenTree.from_drafts(np.empty((1, 0), np.int32))  # of a step that drafts nothing


class DrafterSession(Protocol):
    """A drafter at work on the requests of one call."""

    def propose(self, step: DraftStep) -> list[Draft]:
        """One draft for each of the step's B requests, no deeper than its room."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these requests alone."""


@runtime_checkable
class Remembering(Protocol):
    """A session that is told of texts that have ended."""

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        """Of one request: all that was read and decoded, int32 [n], `start` of which were its prompt."""


class Drafter(Protocol):
    """drawn: how many drafts it draws from a q for each request; 0 if they are deterministic."""

    drawn: int

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        """prompts: as the target was given them. shaping: what makes the target's logits its distribution."""
