"""What a drafter is told before each pass, and the interface of heads that propose several tokens ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.request_text import RequestText
from rescore.lattice.short_repr import short_repr
from rescore.lattice.top import top_of_logits
from rescore.lattice.tree import TokenTree

if TYPE_CHECKING:
    from torch import Tensor


TOP = 8  # most probable tokens after each node that q reads


class Read(NamedTuple):
    """What the last pass read for one request, and the target's predictions after it.

    tokens  int32 [m], the prompt, or the root token and the nodes of the draft
    ids     int32 [m, k], the most probable next tokens first; -1 where unknown
    p       float32 [m, k], their probabilities
    """

    tokens: NDArray[np.int32]
    ids: NDArray[np.int32]
    p: NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastPass:
    """The result of the last pass for one request.

    tree      the verified tree, empty after the prompt
    accepted  the accepted nodes, from the root down
    usual     whether the pass took the time that such passes take, and did not prepare later ones
    """

    tree: TokenTree
    accepted: Sequence[int]
    usual: bool = True

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStep:
    """The state before a pass, of B requests of the call: from one step to the next, requests only leave. In a replay,
    a step may be of some of those that remain.

    texts        what the target has read and decoded, root token last
    room         the most draft tokens that can still be used
    nodes        how many nodes, or paths, to draft; None: as many as the drafter does by itself
    states       returns for each request the target's hidden states [m, width] of the m tokens read since the previous
                 step (in the first step, of the prompt, without the part that was cached); None in a replay
    last         each request's result of the last pass; empty if not kept
    tail         tokens that a pass reads again in every row, until a whole draft is accepted or nothing is drafted
                 (models with recurrent state); None: none ever
    predictions  returns what the last pass read for each request, with the k most probable tokens after it
    """

    texts: Sequence[RequestText]
    room: Sequence[int]
    nodes: int | None = None
    states: Callable[[], Sequence[Tensor]] | None = None
    last: Sequence[LastPass] = ()
    tail: int | None = None
    predictions: Callable[[int], list[Read]] | None = None

    __repr__ = short_repr

    @property
    def histories(self) -> list[NDArray[np.int32]]:
        """The tokens of each text, int32 [n]."""
        return [text.tokens for text in self.texts]


def places_of(texts: Sequence[RequestText], numbers: Sequence[int]) -> list[int] | None:
    """The places of texts among a session's requests, of these numbers; None if all are there, in order."""
    wanted = [text.number for text in texts]
    if wanted == numbers:
        return None
    if not set(wanted) <= set(numbers):
        raise ValueError(f"texts: expected those of requests {numbers}, got {wanted}")
    return [numbers.index(number) for number in wanted]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftVocabulary:
    """ids int32 [D], ascending, of the tokens with a logit; size: V, of the target's vocabulary."""

    ids: Tensor
    size: int


class HeadsSession(Protocol):
    """Heads, opened for the requests of one call."""

    def logits(self, step: DraftStep) -> Tensor:
        """Logits [B, T, D]: slot t predicts the token t + 1 positions after the root token, t from 0; D as in the
        heads' `vocabulary`.
        """


class Heads(Protocol):
    """Heads 2..h of a model.

    slots       T = h - 1
    vocabulary  the D tokens that have logits; None: all V
    """

    slots: int
    vocabulary: DraftVocabulary | None

    def open(self, requests: int) -> HeadsSession: ...


def top_of_heads(
    logits: Tensor, k: int, vocabulary: DraftVocabulary | None
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """As `top_of_logits`, for heads' logits [..., T, D]: ids among V tokens, logp and entropy over the D."""
    columns, logp, entropy = top_of_logits(logits, k)
    ids = columns if vocabulary is None else vocabulary.ids.cpu().numpy()[columns]
    return ids, logp, entropy


class PathHeadsSession(Protocol):
    """A head that reads its own draft, opened for the requests of one call."""

    def tell(self, step: DraftStep) -> None:
        """Tells of a step; the head reads its states later."""

    def sync(self, step: DraftStep) -> Tensor:
        """Logits [B, D] of the token after each root token; reads all states. ValueError if some were not told."""

    def read_trees(self, trees: Sequence[TokenTree]) -> tuple[Tensor, list[TokenTree]]:
        """Reads the nodes of trees behind the root tokens whose parents have been read. Logits [B, 1 + n, D] after the
        root tokens and these nodes, and the trees of these alone.
        """


@runtime_checkable
class PathHeads(Protocol):
    """A head that reads its own draft behind the target's states.

    vocabulary  as in `Heads`
    """

    vocabulary: DraftVocabulary | None

    def open(self, requests: int) -> PathHeadsSession: ...


class StatelessHeads(ABC):
    """Heads without state: they see one hidden state and the root token that it gave."""

    slots: int
    vocabulary: DraftVocabulary | None = None

    @abstractmethod
    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        """Logits [..., T, D] of hidden states [..., width] and the root tokens after them, integers [...]."""

    def open(self, requests: int) -> StatelessHeads:
        return self

    def logits(self, step: DraftStep) -> Tensor:
        assert step.states is not None, "a step of decoding has hidden states"
        import torch

        hidden = torch.stack([states[-1] for states in step.states()])
        certain = torch.tensor([int(text.tokens[-1]) for text in step.texts], device=hidden.device)
        return self.of_hidden(hidden, certain)


class NoHeads(StatelessHeads):
    """The heads of a model that predicts only the next token: none."""

    slots = 0

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return hidden.new_empty(len(hidden), 0, self.vocab_size)
