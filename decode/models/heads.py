"""The interface of heads that propose several tokens ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.draft_vocabulary import DraftVocabulary
from rescore.lattice.short_repr import short_repr
from rescore.lattice.top import top_of_logits
from rescore.lattice.tree import TokenTree


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LastPass:
    """The result of the last pass for one request.

    tree      the verified tree, empty after the prompt
    accepted  the accepted nodes, from the root down
    logits    [1 + n, V] of the target, row 0 after the root token, row 1 + i after node i
    """

    tree: TokenTree
    accepted: Sequence[int]
    logits: Tensor

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStep:
    """The state before a pass, of the B active requests.

    histories  the whole text that the target has read and decoded, int32 [n] each, root token last
    hidden     the target's hidden states [B, width] that gave the root tokens
    fresh      for each request, hidden states [m, width] of the m tokens read since the previous step (in the first
               step, of the prompt, without the part that was cached)
    room       the most draft tokens that can still be used
    random     each request's random generator, for drawn drafts
    last       each request's result of the last pass; empty if not kept
    logits     computes the target's logits [..., V] of hidden states; None if not available
    """

    histories: Sequence[NDArray[np.int32]]
    hidden: Tensor
    fresh: Sequence[Tensor]
    room: Sequence[int]
    random: Sequence[np.random.Generator]
    last: Sequence[LastPass] = ()
    logits: Callable[[Tensor], Tensor] | None = None

    __repr__ = short_repr


class HeadsSession(Protocol):
    """Heads, opened for the requests of one call."""

    def logits(self, step: DraftStep) -> Tensor:
        """Logits [B, T, D]: slot t predicts the token t + 1 positions after the root token, t from 0; D as in the
        heads' `vocabulary`.
        """

    def select(self, rows: Sequence[int]) -> None:
        """Keeps only these requests."""


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
    ids = columns if vocabulary is None else vocabulary.tokens(torch.from_numpy(columns)).cpu().numpy()
    return ids, logp, entropy


class Memoryless(ABC):
    """Heads without state: they see one hidden state and the root token that it gave."""

    slots: int
    vocabulary: DraftVocabulary | None = None

    @abstractmethod
    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        """Logits [..., T, D] of hidden states [..., width] and the root tokens after them, integers [...]."""

    def open(self, requests: int) -> Memoryless:
        return self

    def logits(self, step: DraftStep) -> Tensor:
        certain = torch.tensor([int(history[-1]) for history in step.histories], device=step.hidden.device)
        return self.of_hidden(step.hidden, certain)

    def select(self, rows: Sequence[int]) -> None:  # noqa: B027 -- no state
        pass


class NoHeads(Memoryless):
    """The heads of a model that predicts only the next token: none."""

    slots = 0

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return hidden.new_empty(len(hidden), 0, self.vocab_size)
