"""Weights of heads and models, slot by slot."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def checked_alpha(alpha: ArrayLike, models: int) -> NDArray[np.float64]:
    """alpha as [J, 1] or [J, T]; ValueError unless its weights are finite and at least 0."""
    weights = np.asarray(alpha, np.float64)
    if weights.ndim == 0:
        weights = np.full((models, 1), weights)
    elif weights.ndim == 1:
        weights = weights[:, None]
    if weights.ndim != 2 or len(weights) != models:
        raise ValueError(
            f"alpha: expected a number, [J] or [J, T] for J = {models} models, got shape {list(np.shape(alpha))}"
        )
    for value in weights.flat:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"alpha: expected finite weights of at least 0, got {value}")
    return weights


def checked_head(head: ArrayLike) -> NDArray[np.float64]:
    """head as [1] or [T]; ValueError unless its weights are finite and at least 0."""
    weights = np.atleast_1d(np.asarray(head, np.float64))
    if weights.ndim != 1 or not weights.size:
        raise ValueError(f"head: expected a number or [T], got shape {list(np.shape(head))}")
    for value in weights:
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"head: expected finite weights of at least 0, got {value}")
    return weights


def alpha_of_slots(alpha: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """[J, T] of what `checked_alpha` gave."""
    if alpha.shape[1] not in (1, slots):
        raise ValueError(f"alpha: expected a weight for each of {slots} slots, got {alpha.shape[1]}")
    return np.ascontiguousarray(np.broadcast_to(alpha, (len(alpha), slots)))
