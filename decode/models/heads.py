"""What the decode loop asks of heads that propose several tokens ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftStep:
    """What is known before a pass, for the B requests under way.

    histories  what the target has read and decoded, int32 [n] each, the certain token last
    hidden     the target's hidden states [B, width] that gave the certain tokens
    fresh      hidden states [m, width] of the m tokens read since the step before (at first: of the prompt, without
               what the cache held), each request's own
    room       the most draft tokens that can still be used
    random     each request's own random numbers, for drafts that are drawn
    """

    histories: Sequence[NDArray[np.int32]]
    hidden: Tensor
    fresh: Sequence[Tensor]
    room: Sequence[int]
    random: Sequence[np.random.Generator]


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
