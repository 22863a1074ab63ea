"""The interface between drafters and the decode loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.draft import Draft
from rescore.lattice.tree import Drafts, TokenTree, Trees

if TYPE_CHECKING:
    from rescore.decode.verify.shaping import Shaping


Proposed = Trees | Drafts | Sequence[Draft]
"""What a step proposes for its B requests: trees, paths to merge by prefix, or one draft each."""


class DrafterSession(Protocol):
    """A drafter, opened for the requests of one call."""

    def propose(self, step: DraftStep) -> Proposed:
        """Drafts for the step's B requests. Trees and paths may be deeper than the room, which cuts them; the first n
        nodes or paths of a proposal are the one of size n.
        """


@dataclass(frozen=True, slots=True)
class Proposing:
    """A session that is nothing but a function."""

    propose: Callable[[DraftStep], Proposed]


def drafts_of(proposed: Proposed, room: Sequence[int]) -> Sequence[Draft]:
    """One draft for each request, no deeper than its room."""
    if isinstance(proposed, Trees):
        return [Draft(tree=proposed[b].within(most)) for b, most in enumerate(room)]
    if isinstance(proposed, Drafts):
        paths = zip(proposed.tokens, proposed.count.tolist(), room)
        return [Draft(tree=TokenTree.from_drafts(tokens[:count, :most])) for tokens, count, most in paths]
    return proposed


@runtime_checkable
class HearsEndedTexts(Protocol):
    """A session that is notified of texts that have ended."""

    def ended(self, history: NDArray[np.int32], start: int) -> None:
        """Receives the whole text of one request, int32 [n]; the first `start` tokens were its prompt."""


class Drafter(Protocol):
    """drawn: how many drafts it draws from q per request; 0 if its drafts are deterministic."""

    drawn: int

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        """prompts: the target's. shaping: how the target's logits become its distribution."""


@runtime_checkable
class Fitting(Protocol):
    """A drafter whose models may know fewer ids than the target."""

    def fitted(self, vocab_size: int) -> Drafter:
        """This drafter for a target of `vocab_size` ids. ValueError if its models know more."""


def fitted_drafter(drafter: Drafter, vocab_size: int) -> Drafter:
    """The drafter for a target of `vocab_size` ids. What its sources do not know, they neither draft nor build on."""
    return drafter.fitted(vocab_size) if isinstance(drafter, Fitting) else drafter
