"""The interface of a target, the model that verifies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.models.block import Block


class Target(Protocol):
    """A causal language model that reads blocks of tokens after those in a cache.

    vocab_size  V
    context     the most positions it can read; None if unlimited
    trees       whether it reads trees (positions by depth, a mask per token), or only chains
    reads_back  whether `logits` works for every hidden state; otherwise only for a prompt's last one, and for those of
                later passes right after the pass
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
        """Returns a cache with `copies` rows for each prompt, next to each other, and the tokens to read first.

        The cache is a `SlotCache`, or another type with its `held`, `keep` and `select`, and `copy` if there may be
        several copies. The tokens to read first are the prompt's; for an encoder-decoder, whose encoder reads the
        prompt here, they are the decoder's first tokens. The cache may already hold some of them (`SlotCache.held`),
        but never the last.

        length: number of slots that will be needed.
        """

    def read(self, block: Block, cache: Any) -> Tensor:
        """Reads a block and stores its keys and values in the cache; returns last hidden states [R, L, width]."""

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., V] of the next token, from hidden states [..., width]."""


@runtime_checkable
class Switching(Protocol):
    """A target that reads a text otherwise once it is longer than `switch` tokens, as longrope does.

    switch       None: it does not
    longest      the most positions of a text that is read so, in place of `context`
    reads_again  whether it then reads the whole text again; otherwise keys and values of earlier tokens stay
    """

    switch: int | None
    longest: int | None
    reads_again: bool
