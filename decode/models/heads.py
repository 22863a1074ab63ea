"""What the decode loop asks of heads that propose several tokens ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStep:
    """What is known before a pass, for the B requests under way.

    histories  what the target has read and decoded, int32 [n] each, the certain token last
    hidden     the target's hidden states [B, width] that gave the certain tokens
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


class HeadsSession(Protocol):
    """Heads at work on the requests of one call."""

    def logits(self, step: DraftStep) -> Tensor:
        """Logits [B, T, V]: slot t is for the token t + 1 positions behind the certain one's, counted from 0."""

    def select(self, rows: Sequence[int]) -> None:
        """Go on with these requests alone."""


class Heads(Protocol):
    """Heads 2..h of a model; `slots` is T = h - 1."""

    slots: int

    def open(self, requests: int) -> HeadsSession: ...


class Memoryless(ABC):
    """Heads that see one hidden state [B, width] and nothing else; a subclass defines `of_hidden` -> [B, T, V]."""

    slots: int

    @abstractmethod
    def of_hidden(self, hidden: Tensor) -> Tensor: ...

    def open(self, requests: int) -> Memoryless:
        return self

    def logits(self, step: DraftStep) -> Tensor:
        return self.of_hidden(step.hidden)

    def select(self, rows: Sequence[int]) -> None:  # noqa: B027 -- there is nothing to forget
        pass


class NoHeads(Memoryless):
    """Of a model without heads: it predicts the next token alone."""

    slots = 0

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def of_hidden(self, hidden: Tensor) -> Tensor:
        return hidden.new_empty(len(hidden), 0, self.vocab_size)
