"""The interface of heads that propose several tokens ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.draft_step import DraftStep
from rescore.lattice.top import top_of_logits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftVocabulary:
    """ids int32 [D], ascending, of the tokens with a logit; size: V, of the target's vocabulary."""

    ids: Tensor
    size: int

    def tokens(self, columns: Tensor) -> Tensor:
        """Token ids int32 [...] of columns of the logits, integers [...]; both may be on a device."""
        return self.ids[columns.long()]


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
        assert step.hidden is not None, "a step of decoding has hidden states"
        certain = torch.tensor([int(history[-1]) for history in step.histories], device=step.hidden.device)
        return self.of_hidden(step.hidden, certain)

    def select(self, rows: Sequence[int]) -> None:  # noqa: B027 -- no state
        pass


class NoHeads(StatelessHeads):
    """The heads of a model that predicts only the next token: none."""

    slots = 0

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return hidden.new_empty(len(hidden), 0, self.vocab_size)
