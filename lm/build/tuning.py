"""Fits the weights of a mixture of models to held-out text.

Linear: expectation maximisation (Jelinek and Mercer 1980), which never makes the text less probable. Log-linear:
Newton's method on the log loss of the text, which is convex in the weights (`heldout.py`). Projection keeps the weights
>= 0 (Bertsekas, SIAM J. Control and Optimization 20, 1982); they need not sum to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.lm.build.heldout import HeldOut, Nats, read
from rescore.lm.build.interpolate import Mixture, check_alike, mixed_cost
from rescore.lm.model.ngram import NGram

ROUNDS = 1000
CLOSE = 1e-6  # convergence: change of weights per round, and of nats per token


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TunedMixture:
    """The mixture fitted to held-out text, and the log loss of its n tokens, in nats.

    alone  of each model; equal: with equal weights; nats: of the mixture. All are of dynamic mixtures
           (`interpolate.py`)
    """

    mixture: Mixture
    tokens: int
    alone: tuple[float, ...]
    equal: float
    nats: float


def tune_mixture(
    models: Sequence[NGram], texts: Sequence[ArrayLike], *, end_of_text: int | None = None, log_linear: bool = False
) -> TunedMixture:
    """The best weights of J models for the tokens [n] of texts, read one after the other as one text.

    end_of_text  the end-of-text token that precedes the first token; None: the history is empty

    ValueError if there is no token. Takes 8 J bytes per token, and for log-linear mixtures 8 J bytes per n-gram.
    """
    check_alike(models)
    costs = np.array([read(model, texts, end_of_text)[0] for model in models], np.float64)
    if not costs.size:
        raise ValueError("held-out text: expected at least one token to tune the weights on, got none")
    found = _log_linear(models, costs, texts, end_of_text) if log_linear else _linear(costs)
    return TunedMixture(
        mixture=Mixture(weights=tuple(found.weights.tolist()), log_linear=log_linear),
        tokens=costs.shape[1],
        alone=tuple(costs.sum(axis=1).tolist()),
        equal=found.equal,
        nats=found.nats,
    )


class Optimum(NamedTuple):
    weights: NDArray[np.float64]
    nats: float
    equal: float


def _linear(costs: NDArray[np.float64]) -> Optimum:
    """EM for costs [J, n] of the tokens under each model."""
    weights = np.full(len(costs), 1 / len(costs))
    equal = _mixed_nats(costs, weights)
    likelihood = np.exp(costs.min(axis=0) - costs)
    for _ in range(ROUNDS):
        # The new weights are the means of the models' posteriors for each token.
        better = weights * (likelihood @ (1 / (weights @ likelihood))) / costs.shape[1]
        moved = np.abs(better - weights).max()
        weights = better / better.sum()
        if moved < CLOSE:
            break
    best = _mixed_nats(costs, weights)
    for j in np.argsort(weights)[:-1]:  # a weight near 0 would keep all n-grams of its model; try 0
        without = np.where(np.arange(len(weights)) == j, 0, weights)
        without /= without.sum()
        nats = _mixed_nats(costs, without)
        if nats <= best + CLOSE * costs.shape[1]:
            weights, best = without, nats
    return Optimum(weights, best, equal)


def _mixed_nats(costs: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    used = weights > 0
    return float(mixed_cost(costs[used], weights[used]).sum())


def _log_linear(
    models: Sequence[NGram], costs: NDArray[np.float64], texts: Sequence[ArrayLike], end_of_text: int | None
) -> Optimum:
    text = HeldOut.of([model.to_tables() for model in models], costs.sum(axis=1), texts, end_of_text)
    weights = np.full(len(models), 1 / len(models))
    now = equal = text.nats(weights)
    for _ in range(ROUNDS):
        # A weight of 0 whose gradient points below 0 stays fixed.
        free = (weights > 0) | (now.slope < 0)
        step = np.zeros(len(weights))
        step[free] = -np.linalg.lstsq(now.curve[np.ix_(free, free)], now.slope[free], rcond=None)[0]
        weights, better = _downhill(text, weights, step, now)
        gained, now = now.value - better.value, better
        if gained < CLOSE * costs.shape[1]:
            break
    return Optimum(weights, now.value, equal.value)


def _downhill(
    text: HeldOut, weights: NDArray[np.float64], step: NDArray[np.float64], now: Nats
) -> tuple[NDArray[np.float64], Nats]:
    """Backtracking: the first of the step, its half, its quarter, .. that does not increase F; no step if all do."""
    for halves in range(20):
        tried = np.maximum(weights + step / 2**halves, 0)
        found = text.nats(tried) if tried.any() else None
        if found is not None and found.value <= now.value:
            return tried, found
    return weights, now
