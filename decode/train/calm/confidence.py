"""Confidence measures of early exits (Schuster et al. 2022, arXiv 2207.07061, section 3).

The third one, a trained classifier, is `rescore.decode.models.exit_heads`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import torch
from msgspec import Meta
from torch import Tensor

from rescore.lattice.checked import Checked

SOFTMAX, SATURATION = "softmax", "saturation"  # names on the command line and in reports
Confidence = Callable[[int, Tensor, Tensor], Tensor]
"""(layers, state, below) -> confidences in [0, 1], float32 [R, L]. state, below: states [R, L, width] after `layers`
layers and after one layer less."""


def softmax_margin(logits: Callable[[int, Tensor], Tensor], layers: int, state: Tensor, below: Tensor) -> Tensor:
    """The softmax response: the difference between the two largest probabilities predicted from this layer's state.

    logits: logits(layers, state), [..., V] from states [..., width]. Every exit tried costs an output layer.
    """
    best = logits(layers, state).float().softmax(dim=-1).topk(2, dim=-1).values
    return best[..., 0] - best[..., 1]


def saturation(layers: int, state: Tensor, below: Tensor) -> Tensor:
    """The cosine similarity of the states of successive layers, clamped at 0: how little the last layer changed."""
    return torch.cosine_similarity(state.float(), below.float(), dim=-1).clamp(min=0.0)


class Threshold(Checked, frozen=True, kw_only=True):
    """The threshold clip(0.9 value + 0.1 exp(-decay t / length), 0, 1) at token t of a text (Schuster et al. 2022,
    equation 5). It decays because errors in early tokens cost most.

    value   lambda in [0, 1]; at 1, only a confidence of exactly 1 exits
    decay   tau; None: `value` at all tokens
    length  N, the maximum tokens of a text
    """

    value: Annotated[float, Meta(ge=0, le=1)]
    decay: Annotated[float, Meta(ge=0, le=sys.float_info.max)] | None = None
    length: Annotated[int, Meta(ge=1)] = 64

    def at(self, tokens: Tensor) -> Tensor:
        """Returns thresholds, float32, for token indices, int64 of the same shape, counted from 0."""
        if self.decay is None:
            return torch.full(tokens.shape, self.value, device=tokens.device)
        return (0.9 * self.value + 0.1 * torch.exp(-self.decay * tokens / self.length)).clamp(0.0, 1.0)
