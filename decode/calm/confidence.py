"""Confidence measures of early exits (Schuster et al. 2022, arXiv 2207.07061, section 3).

The third one, a trained classifier, is `rescore.decode.models.exit_heads`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Confidence(Protocol):
    """A confidence measure. name: on the command line and in reports."""

    name: str

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        """Returns confidences in [0, 1], float32 [R, L]. state, below: states [R, L, width] after `layers` layers and
        after one layer less.
        """


class SoftmaxResponse:
    """The difference between the two largest probabilities in the distribution predicted from this layer's state.

    logits: logits(layers, state), [..., V] from states [..., width]. Every exit tried costs an output layer.
    """

    name = "softmax"

    def __init__(self, logits: Callable[[int, Tensor], Tensor]):
        self._logits = logits

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        best = self._logits(layers, state).float().softmax(dim=-1).topk(2, dim=-1).values
        return best[..., 0] - best[..., 1]


class Saturation:
    """The cosine similarity of the states of successive layers, clamped at 0: how little the last layer changed."""

    name = "saturation"

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        return torch.cosine_similarity(state.float(), below.float(), dim=-1).clamp(min=0.0)
