"""The blockwise transformer in the decode loop: head 1 verifies, heads 2..h propose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.block import Block
from rescore.decode.models.blockwise import BlockwiseTransformer
from rescore.decode.models.heads import Memoryless
from rescore.decode.models.slot_cache import SlotCache


class BlockwiseTarget:
    """Head 1 of a blockwise transformer as a `Target`."""

    trees = True
    reads_back = True

    def __init__(self, model: BlockwiseTransformer):
        self.model = model
        self.vocab_size = model.config.vocab_size
        self.context: int | None = model.config.context

    @property
    def device(self) -> torch.device:
        return self.model.embedding.weight.device

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[SlotCache, list[NDArray[np.int64]]]:
        return SlotCache(len(prompts) * copies, length), list(prompts)

    def read(self, block: Block, cache: SlotCache) -> Tensor:
        return self.model.read(block, cache)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden, 1)


class BlockwiseHeads(Memoryless):
    """Heads 2..h of a blockwise transformer as `Heads`."""

    def __init__(self, model: BlockwiseTransformer):
        if model.config.heads < 2:
            raise ValueError(
                f"heads: expected a model with at least 2 heads, got {model.config.heads}; it cannot propose drafts"
            )
        self.model = model
        self.slots = model.config.heads - 1

    def of_hidden(self, hidden: Tensor, certain: Tensor) -> Tensor:
        return self.model.all_logits(hidden, first=2)
