"""The interface between drafters and the decode loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.draft import Draft
from rescore.lattice.drafts import Drafts
from rescore.lattice.sausage import Sausage
from rescore.lattice.tree import TokenTree
from rescore.lattice.trees import Trees

if TYPE_CHECKING:
    from rescore.decode.draft.text_memory import TextMemory
    from rescore.decode.models.target import Target
    from rescore.decode.verify.shaping import Shaping
    from rescore.lm.ngram import NGram

EMPTY = TokenTree.from_drafts(np.empty((1, 0), np.int32))  # the tree of a step that drafts nothing


Proposed = Trees | Drafts | Sequence[Draft]
"""What a step proposes for its B requests: trees, paths to merge by prefix, or one draft each."""


class DrafterSession(Protocol):
    """A drafter, opened for the requests of one call."""

    def propose(self, step: DraftStep) -> Proposed:
        """Drafts for the step's B requests. Trees and paths may be deeper than the room, which cuts them; the first n
        nodes or paths of a proposal are the one of size n.
        """

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests."""


def drafts_of(proposed: Proposed, room: Sequence[int]) -> Sequence[Draft]:
    """One draft for each request, no deeper than its room."""
    if isinstance(proposed, Trees):
        return [Draft(tree=proposed[b].within(most)) for b, most in enumerate(room)]
    if isinstance(proposed, Drafts):
        paths = zip(proposed.tokens, proposed.count.tolist(), room)
        return [Draft(tree=TokenTree.from_drafts(tokens[:count, :most])) for tokens, count, most in paths]
    return proposed


class LatticeSession(Protocol):
    """Lattices of the heads' candidates, for the requests of one call."""

    def sausages(self, step: DraftStep) -> Sausage:
        """The lattices [B, T, K] after the step's root tokens."""

    def resident(self, step: DraftStep) -> Any:
        """The same as a `TensorSausage` on the target's device, if it has kernels for tensors; else as `sausages`."""

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests."""


class Lattices(Protocol):
    """Where a drafter's lattices come from: the heads of a model, or the rows of a dump. slots: T."""

    @property
    def slots(self) -> int: ...

    def open(self, requests: int) -> LatticeSession: ...


class Missing(ValueError):
    """A drafter lacks a source or option, or has one that it cannot use."""


class DraftSources(Protocol):
    """What a command has for its drafters. A source that is missing is `Missing`, which says how to give it.

    threads  for batches of searches
    samples  whether text is sampled
    target   whose passes are timed where sizes are chosen by time
    """

    threads: int

    @property
    def samples(self) -> bool: ...
    @property
    def target(self) -> Target: ...

    def lattice(self, top_k: int) -> Lattices:
        """Lattices of the model's heads."""

    def has_heads(self) -> bool: ...

    def lms(self) -> list[NGram]:
        """The n-gram models."""

    def rescorer(self, alpha: Any) -> Rescorer:
        """A rescorer with all n-gram models at fixed weights, or with none."""

    def calibrated(self, kind: str, settings: Any) -> tuple[Rescorer, int]:
        """The rescorer of a kind of tree in settings, and the candidates per slot that it was tuned for."""

    def alpha(self, alpha: Any) -> list[float]:
        """The weight of a model: one, or one per slot."""

    def small(self, path: Any, option: str) -> Target:
        """The small model that an option names."""

    def memory(self) -> TextMemory | None:
        """Texts of earlier requests."""


def fixed_size(nodes: int | str) -> int:
    """A number of nodes. ValueError for "auto", which only trees under q can choose: their nodes say what they are
    expected to gain.
    """
    if not isinstance(nodes, int):
        raise Missing(f"--nodes {nodes}: only for trees under a q; give a number of nodes")
    return nodes


def of_sources(sources: DraftSources, options: Mapping[str, Any]) -> None:
    """No drafter: plain decoding."""


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
