"""Where drafters' lattices and n-gram models come from."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from rescore.decode.draft.rescorer import Rescorer
    from rescore.decode.models.draft_step import DraftStep
    from rescore.lattice.sausage import Lattice, Sausage
    from rescore.lattice.tree import Trees


class LatticeSession(Protocol):
    """Lattices of the heads' candidates, for the requests of one call."""

    def sausages(self, step: DraftStep) -> Sausage:
        """The lattices [B, T, K] after the step's root tokens."""


@runtime_checkable
class GrowingSession(Protocol):
    """Lattices of what predicts behind a draft, which grow by what was drafted."""

    @property
    def levels(self) -> Sequence[int]:
        """How many nodes of the best tree are read, one time after another."""

    def begun(self, step: DraftStep) -> Lattice:
        """The lattices after the step's root tokens."""

    def grown(self, trees: Trees) -> Lattice:
        """The lattices after the last step's root tokens and after nodes of these trees."""

    def passed(self, step: DraftStep) -> None:
        """Tells of a step for which none are wanted."""


class Lattices(Protocol):
    """Where a drafter's lattices come from: the heads of a model, or the rows of a dump. slots: T."""

    @property
    def slots(self) -> int: ...

    def open(self, requests: int) -> LatticeSession: ...


class Growing(Protocol):
    """Where lattices that grow come from, such as a small model."""

    def open(self, requests: int) -> GrowingSession: ...


Rescored = TypeVar("Rescored", bound="Rescoring")


class Rescoring:
    """A drafter whose n-gram models are those of a rescorer, and may know fewer ids than the target."""

    rescorer: Rescorer

    def fitted(self: Rescored, vocab_size: int) -> Rescored:
        """This drafter for a target of `vocab_size` ids. ValueError if its models know more, or words."""
        for model in self.rescorer.models:
            model.require_tokens()
        rescorer, own = self.rescorer.widened(vocab_size), self
        if rescorer is not self.rescorer:
            own = copy(self)
            own.rescorer = rescorer
        return own
