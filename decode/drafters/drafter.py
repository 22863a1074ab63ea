"""The interface between drafters and the decode loop."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.heads import DraftStep
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree

EMPTY = TokenTree.from_drafts(np.empty((1, 0), np.int32))  # the tree of a step that drafts nothing


class DrafterSession(Protocol):
    """A drafter, opened for the requests of one call."""

    def propose(self, step: DraftStep) -> list[Draft]:
        """Returns one draft for each of the step's B requests, no deeper than its room."""

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests."""


@runtime_checkable
class Remembering(Protocol):
    """A session that is notified of texts that have ended."""

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        """Receives the whole text of one request, int32 [n]; the first `start` tokens were its prompt."""


class Drafter(Protocol):
    """drawn: how many drafts it draws from q per request; 0 if its drafts are deterministic."""

    drawn: int

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        """prompts: the target's. shaping: how the target's logits become its distribution."""


@runtime_checkable
class Fitted(Protocol):
    """A drafter with sources that may know fewer ids than the target, such as n-gram models."""

    def fitted(self, vocab_size: int) -> Drafter:
        """Returns this drafter for a target of `vocab_size` ids. ValueError if its sources know more."""


def fitted(drafter: Drafter, vocab_size: int) -> Drafter:
    """The drafter for a target of `vocab_size` ids. What its sources do not know, they neither draft nor build on."""
    return drafter.fitted(vocab_size) if isinstance(drafter, Fitted) else drafter


Rescored = TypeVar("Rescored", bound="Rescoring")


class Rescoring:
    """A drafter whose n-gram models are those of a rescorer."""

    rescorer: Rescorer

    def fitted(self: Rescored, vocab_size: int) -> Rescored:
        rescorer, own = self.rescorer.widened(vocab_size), self
        if rescorer is not self.rescorer:
            own = copy(self)
            own.rescorer = rescorer
        return own
