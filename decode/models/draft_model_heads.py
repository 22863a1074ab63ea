"""A small model's greedy draft as the slots of a lattice.

Slot t reads the best tokens of the slots before it, as in modules of multi-token prediction, so its candidates are
conditioned on the greedy draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.draft_vocabulary import DraftVocabulary
from rescore.decode.models.reader import Reader
from rescore.decode.models.target import Target


class DraftModelHeads:
    """T slots of a causal model that shares the target's tokenizer, as `Heads`.

    vocab_size  V of the target; the small model's may differ by padding (`Reader`)
    """

    vocabulary: DraftVocabulary | None = None

    def __init__(self, model: Target, *, slots: int, vocab_size: int):
        if slots < 1:
            raise ValueError(f"slots: expected at least 1, got {slots}")
        self.model, self.slots, self.vocab_size = model, slots, vocab_size

    def open(self, requests: int) -> DraftModelSlots:
        return DraftModelSlots(self)


class DraftModelSlots:
    """A small model, opened for the requests of one call."""

    def __init__(self, heads: DraftModelHeads):
        self.heads = heads
        self.reader: Reader | None = None

    @torch.inference_mode()
    def logits(self, step: DraftStep) -> Tensor:
        """[B, T, V]; text that was already read is not read again."""
        heads = self.heads
        if self.reader is None:
            self.reader = Reader(heads.model, step.histories, ahead=heads.slots - 1, vocab_size=heads.vocab_size)
        slots = [self.reader.sync(step.histories)]
        while len(slots) < heads.slots:
            slots.append(self.reader.extend(slots[-1].argmax(dim=-1)))
        return torch.stack(slots, dim=1)

    def select(self, rows: Sequence[int]) -> None:
        if self.reader is not None:
            self.reader.select(rows)
