"""Logistic choices among alternatives, fitted by Newton's method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RIDGE = 1e-3  # per observation: makes the optimum unique
ITERATIONS = 50
SMALLEST_STEP = 1e-6
CLOSE = 1e-12  # gain in likelihood at which to stop


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choices:
    """m choices among C alternatives with F features. Alternative c of row i is chosen with probability proportional to
    exp(features[i, c] @ weights + offset[i, c]).

    features  float64 [m, C, F], finite
    offset    float64 [m, C], -inf for missing alternatives
    chosen    int64 [m], the chosen alternative
    """

    features: NDArray[np.float64]
    offset: NDArray[np.float64]
    chosen: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, which: slice | NDArray[np.bool_]) -> Choices:
        return Choices(features=self.features[which], offset=self.offset[which], chosen=self.chosen[which])

    @classmethod
    def joined(cls, parts: Sequence[Choices]) -> Choices:
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__})


def fit_logit(choices: Choices, start: NDArray[np.float64], *, least: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the weights [F] of greatest penalised likelihood, none below `least` [F].

    start: [F], the centre of the ridge penalty.
    """
    free = np.ones(len(start), bool)
    weights = start.astype(np.float64).copy()
    while True:
        weights = newton(choices, weights, start, free)
        below = free & (weights < least)
        if not below.any():
            return weights
        # Fix the weight furthest below its bound at the bound, and refit the rest.
        worst = int(np.argmax(np.where(below, least - weights, -np.inf)))
        weights[worst], free[worst] = least[worst], False


def newton(
    choices: Choices, weights: NDArray[np.float64], centre: NDArray[np.float64], free: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Returns the optimum over the free weights, starting from `weights`."""
    value, gradient, hessian = likelihood(choices, weights, centre)
    for _ in range(ITERATIONS if free.any() else 0):
        step = np.zeros(len(weights))
        step[free] = np.linalg.solve(hessian[np.ix_(free, free)], gradient[free])
        size = 1.0
        while (found := likelihood(choices, weights + size * step, centre))[0] < value and size > SMALLEST_STEP:
            size /= 2
        if found[0] <= value:
            break
        gained = found[0] - value
        weights, (value, gradient, hessian) = weights + size * step, found
        if gained < CLOSE:
            break
    return weights


def likelihood(
    choices: Choices, weights: NDArray[np.float64], centre: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Returns the mean ln probability of the choices minus the ridge penalty, its gradient [F] and its negated Hessian
    [F, F].
    """
    scores = choices.features @ weights + choices.offset
    scores -= scores.max(axis=1, keepdims=True)
    q = np.exp(scores)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    m = np.arange(len(q))
    value = float(np.mean(scores[m, choices.chosen] - np.log(total[:, 0])))
    mean = np.einsum("mc,mcf->mf", q, choices.features)
    gradient = (choices.features[m, choices.chosen] - mean).mean(axis=0)
    second = np.einsum("mcf,mcg->fg", q[..., None] * choices.features, choices.features, optimize=True) / len(q)
    away = weights - centre
    hessian = second - mean.T @ mean / len(q) + RIDGE * np.eye(len(weights))
    return value - RIDGE / 2 * float(away @ away), gradient - RIDGE * away, hessian
