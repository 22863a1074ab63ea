"""How sure a layer is of the next token: the confidences of Schuster et al. 2022 (arXiv 2207.07061), section 3.

The third, a trained classifier, is in `classifier`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class Confidence(Protocol):
    """name: as the command line and reports call it."""

    name: str

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        """In [0, 1], float32 [R, L], of states [R, L, width] behind so many layers and behind one layer less."""


class SoftmaxResponse:
    """The most probable token's probability less the second's, in the distribution that this layer would give.

    logits  [..., V] of states [..., width] of a layer. They cost an output layer at every exit that is tried
    """

    name = "softmax"

    def __init__(self, logits: Callable[[int, Tensor], Tensor]):
        self._logits = logits

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        best = self._logits(layers, state).float().softmax(dim=-1).topk(2, dim=-1).values
        return best[..., 0] - best[..., 1]


class Saturation:
    """The cosine of the states of successive layers, negative ones as 0: how little the last layer changed."""

    name = "saturation"

    def __call__(self, layers: int, state: Tensor, below: Tensor) -> Tensor:
        return torch.cosine_similarity(state.float(), below.float(), dim=-1).clamp(min=0.0)
