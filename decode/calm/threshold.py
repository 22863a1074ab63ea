"""The confidence required to exit, which may decay along a text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The threshold clip(0.9 value + 0.1 exp(-decay t / length), 0, 1) at token t of a text (Schuster et al. 2022,
    equation 5). It decays because errors in early tokens cost most.

    value   lambda in [0, 1]; at 1, only a confidence of exactly 1 exits
    decay   tau; None: `value` at all tokens
    length  N, the maximum tokens of a text
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
        """Returns thresholds, float32, for token indices, int64 of the same shape, counted from 0."""
        if self.decay is None:
            return torch.full(tokens.shape, self.value, device=tokens.device)
        return (0.9 * self.value + 0.1 * torch.exp(-self.decay * tokens / self.length)).clamp(0.0, 1.0)
