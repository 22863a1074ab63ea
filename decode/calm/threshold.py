"""The confidence from which a token leaves the layers, which may fall along a text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """Schuster et al. 2022, equation 5: clip(0.9 value + 0.1 exp(-decay t / length), 0, 1) at token t of a text, since
    early tokens that go wrong cost most.

    value   lambda in [0, 1]; from 1 on only a confidence of exactly 1 leaves
    decay   tau; None: `value` at all tokens
    length  N, the most tokens of a text
    """

    value: float
    decay: float | None = None
    length: int = 64

    def __post_init__(self) -> None:
        if not 0 <= self.value <= 1:
            raise ValueError(f"value: expected a confidence from 0 to 1, got {self.value}")
        if self.decay is not None and not (0 <= self.decay and math.isfinite(self.decay)):
            raise ValueError(f"decay: expected a number from 0 on, or None, got {self.decay}")
        if self.length < 1:
            raise ValueError(f"length: expected at least 1 token, got {self.length}")

    def at(self, tokens: Tensor) -> Tensor:
        """float32 of the same shape, for numbers of tokens, int64, counted from 0."""
        if self.decay is None:
            return torch.full(tokens.shape, self.value, device=tokens.device)
        return (0.9 * self.value + 0.1 * torch.exp(-self.decay * tokens / self.length)).clamp(0.0, 1.0)
