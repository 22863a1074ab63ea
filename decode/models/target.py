"""What the decode loop asks of a model that verifies, of whatever family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.block import Block


class Target(Protocol):
    """A causal language model that reads blocks of tokens behind a cache.

    vocab_size  V
    context     the most positions it can read, None without a limit
    trees       whether it reads trees (positions by depth, a mask per token); where not, chains alone
    reads_back  whether `logits` gives those of every hidden state; where not, of a prompt's last one and of later
                passes, right after each, alone
    """

    vocab_size: int
    context: int | None
    trees: bool
    reads_back: bool

    @property
    def device(self) -> torch.device: ...

    def open(
        self, prompts: Sequence[NDArray[np.int64]], copies: int, length: int
    ) -> tuple[Any, list[NDArray[np.int64]]]:
        """A cache with `copies` rows for each prompt, those of one prompt beside each other, and what is to be read
        first. The cache is a `SlotCache`, or another with its `held`, `keep` and `select`, and `copy` if
        there may be several copies.

        length  slots that will be needed. What is to be read first is the prompt; for an encoder-decoder, whose encoder
        reads the prompt here, it is what its decoder starts with. The cache may hold the beginning of it
        (`SlotCache.held`); at least its last token is left to be read.
        """

    def read(self, block: Block, cache: Any) -> Tensor:
        """Last hidden states [R, L, width]; keys and values of the block are in the cache afterwards."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of the next token, from hidden states [..., width]."""
