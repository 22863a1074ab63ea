"""What the decode loop asks of heads that propose several tokens ahead."""

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
    """What the last pass said of one request.

    tree      what it verified, empty after the prompt
    accepted  the nodes that were accepted, from the root on
    logits    [1 + n, V] of the target, row 0 behind the root token, row 1 + i behind node i
    """

    tree: TokenTree
    accepted: Sequence[int]
    logits: Tensor

    __repr__ = short_repr


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStep:
    """What is known before a pass, for the B requests under way.

    histories  what the target has read and decoded, int32 [n] each, the root token last
    hidden     the target's hidden states [B, width] that gave the root tokens
    fresh      hidden states [m, width] of the m tokens read since the step before (at first: of the prompt, without
               what the cache held), each request's own
    room       the most draft tokens that can still be used
    random     each request's own random numbers, for drafts that are drawn
    last       what the last pass said of each request; empty where nobody keeps it
    logits     logits [..., V] of the target from its hidden states, None where they are not to be had
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
    """Heads at work on the requests of one call."""

    def logits(self, step: DraftStep) -> Tensor:
        """Logits [B, T, D]: slot t is for the token t + 1 positions behind the certain one's, counted from 0; D as of
        the heads' `vocabulary`.
        """

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these requests alone."""


class Heads(Protocol):
    """Heads 2..h of a model.

    slots       T = h - 1
    vocabulary  the D tokens that they give logits for; None: all V
    """

    slots: int
    vocabulary: DraftVocabulary | None

    def open(self, requests: int) -> HeadsSession: ...


def top_of_heads(
    logits: Tensor, k: int, vocabulary: DraftVocabulary | None
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
    """As `top_of_logits`, of heads' logits [..., T, D]: ids of V tokens, logp and entropy over the D."""
    columns, logp, entropy = top_of_logits(logits, k)
    ids = columns if vocabulary is None else vocabulary.tokens(torch.from_numpy(columns)).cpu().numpy()
    return ids, logp, entropy


class Memoryless(ABC):
    """Heads that see one hidden state, the root token that it gave, and nothing else."""

    slots: int
    vocabulary: DraftVocabulary | None = None

    @abstractmethod
    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        """Logits [..., T, D] of hidden states [..., width] and the root tokens behind them, integers [...]."""

    def open(self, requests: int) -> Memoryless:
        return self

    def logits(self, step: DraftStep) -> Tensor:
        certain = torch.tensor([int(history[-1]) for history in step.histories], device=step.hidden.device)
        return self.of_hidden(step.hidden, certain)

    def select(self, rows: Sequence[int]) -> None:  # noqa: B027 -- there is nothing to forget
        pass


class NoHeads(Memoryless):
    """Of a model without heads: it predicts the next token alone."""

    slots = 0

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return hidden.new_empty(len(hidden), 0, self.vocab_size)
