"""Fits the weights of a mixture of models to held-out text.

Linear: expectation maximisation (Jelinek and Mercer 1980), which never makes the text less probable. Log-linear:
Newton's method on the log loss of the text, in nats,

    F(lambda) = sum over the tokens of [ sum_j lambda_j c_j(w | h) + ln Z(h) ],     c_j = -ln p_j

F is convex. Its gradient and Hessian need, like Z(h) itself (`interpolate.py`), sums over the vocabulary, computed from
the root up: of u, of u c_j and of u c_j c_k. Projection keeps the weights >= 0 (Bertsekas, SIAM J. Control and
Optimization 20, 1982); they need not sum to one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lm.build.interpolate import Mixture, Union, check_alike, mixed_cost
from rescore.lm.model.grams import Grams
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

ROUNDS = 1000
CLOSE = 1e-6  # convergence: change of weights per round, and of nats per token


def read(
    model: NGram, texts: Sequence[ArrayLike], end_of_text: int | None
) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """The cost of every token and the state before it, for texts read as one."""
    state, walks = model.start([] if end_of_text is None else [end_of_text]), []
    for text in texts:
        walks.append(model.walk(text, state))
        state = walks[-1].after
    return np.concatenate([np.zeros(0, np.float32), *(walk.cost for walk in walks)]), np.concatenate(
        [np.zeros(0, np.uint32), *(walk.state for walk in walks)]
    )


class Nats(NamedTuple):
    """F, its gradient [J] and its Hessian [J, J]."""

    value: float
    slope: NDArray[np.float64]
    curve: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """The sufficient statistics of a text's log loss under log-linear mixtures of J models.

    levels    the n-grams of all models
    costs     for each order, their costs under each model: float64 [J, n]
    backoffs  for each order, the backoff costs of its contexts under each model: float64 [J, C]
    seen      for each order, the number of tokens whose longest known context is each context: int64 [C]
    total     float64 [J], the cost of the text under each model
    """

    levels: tuple[Grams, ...]
    costs: tuple[NDArray[np.float64], ...]
    backoffs: tuple[NDArray[np.float64], ...]
    seen: tuple[NDArray[np.int64], ...]
    total: NDArray[np.float64]

    @classmethod
    def of(
        cls, models: Sequence[Tables], total: NDArray[np.float64], texts: Sequence[ArrayLike], end_of_text: int | None
    ) -> HeldOut:
        union = Union.of(models)
        costs, backoffs = zip(*union.costs(models))
        # Only the states of this model matter, not its costs: each is a token's longest known context.
        over_all = NGram.from_tables(
            Tables(
                levels=union.levels,
                cost=tuple(cost[0] for cost in costs),
                backoff=tuple(own[0] for own in backoffs[1:]),
            )
        )
        first = np.cumsum([level.contexts for level in union.levels])
        seen = np.bincount(read(over_all, texts, end_of_text)[1], minlength=first[-1])
        return cls(
            levels=union.levels, costs=costs, backoffs=backoffs, seen=tuple(np.split(seen, first[:-1])), total=total
        )

    def nats(self, weights: NDArray[np.float64]) -> Nats:
        """F at these weights."""
        value, slope, curve = float(weights @ self.total), self.total.copy(), np.zeros((len(weights), len(weights)))
        for seen, sums in zip(self.seen, self._sums(weights)):
            mean = sums.c / sums.one
            value += float(seen @ np.log(sums.one))
            slope -= mean @ seen
            curve += (sums.cc / sums.one) @ seen - (mean * seen) @ mean.T
        return Nats(value, slope, curve)

    def _sums(self, weights: NDArray[np.float64]) -> Iterator[Sums]:
        """Yields the sums for the contexts of each order."""
        sums = Sums.of(self.levels[0], self.costs[0], weights)
        yield sums
        for n in range(1, len(self.levels)):
            level, below, backoff = self.levels[n], self.levels[n - 1], self.backoffs[n]
            suffix = _core.suffixes(level.native, below.native, 0, level.contexts)
            shorter = self.costs[n - 1][:, suffix] + backoff[:, level.context()]
            # As if all words backed off; then replace the words with n-grams of their own.
            sums = sums.backed_off(level.context_parent, backoff, weights)
            sums = sums.plus(Sums.of(level, self.costs[n], weights), 1).plus(Sums.of(level, shorter, weights), -1)
            yield sums


class Sums(NamedTuple):
    """Sums over the words after each of C contexts: of u [C], of u c_j [J, C], of u c_j c_k [J, J, C]."""

    one: NDArray[np.float64]
    c: NDArray[np.float64]
    cc: NDArray[np.float64]

    @classmethod
    def of(cls, level: Grams, cost: NDArray[np.float64], weights: NDArray[np.float64]) -> Sums:
        """The sums over the n-grams of an order with costs [J, n]."""
        context, u = level.context(), np.exp(-(weights @ cost))

        def over(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.bincount(context, values, minlength=level.contexts).astype(np.float64, copy=False)

        c = [u * own for own in cost]
        return cls(
            over(u), np.array([over(own) for own in c]), np.array([[over(one * other) for other in cost] for one in c])
        )

    def backed_off(self, parent: NDArray[np.uint32], b: NDArray[np.float64], weights: NDArray[np.float64]) -> Sums:
        """The sums of contexts that back off to these with costs b [J, C]: u becomes B u, and c_j becomes c_j + b_j."""
        one, c, cc = self.one[parent], self.c[:, parent], self.cc[:, :, parent]
        cross = b[:, None] * c
        raised = cc + cross + cross.swapaxes(0, 1) + b[:, None] * b * one
        return Sums(*(np.exp(-weights @ b) * sums for sums in (one, c + b * one, raised)))

    def plus(self, other: Sums, sign: int) -> Sums:
        return Sums(*(mine + sign * theirs for mine, theirs in zip(self, other)))


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
