"""Weights of heads and models, per slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST = 1000.0  # at this weight, costs of some 500 nats are the greatest that searches tell from impossible


def checked_alpha(alpha: ArrayLike, models: int) -> NDArray[np.float64]:
    """alpha as [J, 1] or [J, T]; ValueError unless its weights are from 0 to MOST."""
    weights = np.asarray(alpha, np.float64)
    if weights.ndim == 0:
        weights = np.full((models, 1), weights)
    elif weights.ndim == 1:
        weights = weights[:, None]
    if weights.ndim != 2 or len(weights) != models:
        raise ValueError(
            f"alpha: expected a number, [J] or [J, T] for J = {models} models, got shape {list(np.shape(alpha))}"
        )
    return _within("alpha", weights)


def checked_head(head: ArrayLike) -> NDArray[np.float64]:
    """head as [1] or [T]; ValueError unless its weights are from 0 to MOST."""
    weights = np.atleast_1d(np.asarray(head, np.float64))
    if weights.ndim != 1 or not weights.size:
        raise ValueError(f"head: expected a number or [T], got shape {list(np.shape(head))}")
    return _within("head", weights)


def _within(name: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    if (wrong := ~((weights >= 0) & (weights <= MOST))).any():
        raise ValueError(f"{name}: expected weights from 0 to {MOST:g}, got {weights[wrong][0]}")
    return weights


def alpha_of_slots(alpha: NDArray[np.float64], slots: int) -> NDArray[np.float64]:
    """The result of `checked_alpha` as [J, T]."""
    if alpha.shape[1] not in (1, slots):
        raise ValueError(f"alpha: expected a weight for each of {slots} slots, got {alpha.shape[1]}")
    return np.ascontiguousarray(np.broadcast_to(alpha, (len(alpha), slots)))
