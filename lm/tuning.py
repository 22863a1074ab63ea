"""Weights of a mixture of models that make held-out text most probable.

Linear: expectation maximisation (Jelinek and Mercer 1980); no round makes the text less probable. Log-linear: the nats of
the text,

    F(lambda) = sum over its tokens of [ sum_j lambda_j c_j(w | h) + ln Z(h) ],     c_j = -ln p_j

are convex in lambda, and what Newton's method needs of Z(h) comes from the root up, as Z(h) itself does
(`interpolate.py`): the sums over the vocabulary of u, of u c_j and of u c_j c_k. Weights stay >= 0 by projection
(Bertsekas, SIAM J. Control and Optimization 20, 1982); they need not sum to one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lm.grams import Grams
from rescore.lm.interpolate import Mixture, check_alike, mixed_cost
from rescore.lm.ngram import NGram
from rescore.lm.tables import Tables
from rescore.lm.union import Union

ROUNDS = 1000
CLOSE = 1e-6  # of weights from round to round, and of nats per token


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tuned:
    """The mixture found on held-out text, and the nats of its n tokens.

    alone  each model's; equal: those of equal weights; nats: those of the mixture. All of dynamic mixtures (`interpolate.py`)
    """

    mixture: Mixture
    tokens: int
    alone: tuple[float, ...]
    equal: float
    nats: float


def tune(models: Sequence[NGram], texts: Sequence[ArrayLike], *, eot: int | None = None, log_linear: bool = False) -> Tuned:
    """The best weights for the tokens [n] of texts, which are read one after the other as one text.

    eot  the end-of-text token that the first follows; None: it follows nothing

    ValueError where there is no token. Takes 8 J bytes a token, and for log-linear mixtures 8 J bytes for each n-gram.
    """
    check_alike(models)
    costs = np.array([read(model, texts, eot)[0] for model in models], np.float64)
    if not costs.size:
        raise ValueError("held-out text: expected at least one token to tune the weights on, got none")
    found = _log_linear(models, costs, texts, eot) if log_linear else _linear(costs)
    return Tuned(mixture=Mixture(weights=tuple(found.weights.tolist()), log_linear=log_linear), tokens=costs.shape[1],
                 alone=tuple(costs.sum(axis=1).tolist()), equal=found.equal, nats=found.nats)


def read(model: NGram, texts: Sequence[ArrayLike], eot: int | None) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    """The cost of every token, and the state before it."""
    state, walks = model.start([] if eot is None else [eot]), []
    for text in texts:
        walks.append(model.walk(text, state))
        state = walks[-1].after
    return np.concatenate([np.zeros(0, np.float32), *(walk.cost for walk in walks)]), np.concatenate([np.zeros(0, np.uint32), *(walk.state for walk in walks)])


class Optimum(NamedTuple):
    weights: NDArray[np.float64]
    nats: float
    equal: float


def _linear(costs: NDArray[np.float64]) -> Optimum:
    """For the costs [J, n] that the models give the tokens."""
    weights = np.full(len(costs), 1 / len(costs))
    equal = _mixed_nats(costs, weights)
    likelihood = np.exp(costs.min(axis=0) - costs)
    for _ in range(ROUNDS):
        # Each model's share of each token, under the weights so far; their means are the new weights.
        better = weights * (likelihood @ (1 / (weights @ likelihood))) / costs.shape[1]
        moved = np.abs(better - weights).max()
        weights = better / better.sum()
        if moved < CLOSE:
            break
    best = _mixed_nats(costs, weights)
    for j in np.argsort(weights)[:-1]:  # a weight that only comes near 0 would keep all n-grams of its model
        without = np.where(np.arange(len(weights)) == j, 0, weights)
        without /= without.sum()
        nats = _mixed_nats(costs, without)
        if nats <= best + CLOSE * costs.shape[1]:
            weights, best = without, nats
    return Optimum(weights, best, equal)


def _mixed_nats(costs: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    used = weights > 0
    return float(mixed_cost(costs[used], weights[used]).sum())


def _log_linear(models: Sequence[NGram], costs: NDArray[np.float64], texts: Sequence[ArrayLike], eot: int | None) -> Optimum:
    text = HeldOut.of([model.to_tables() for model in models], costs.sum(axis=1), texts, eot)
    weights = np.full(len(models), 1 / len(models))
    now = equal = text.nats(weights)
    for _ in range(ROUNDS):
        # A weight of 0 that wants to become negative stays.
        free = (weights > 0) | (now.slope < 0)
        step = np.zeros(len(weights))
        step[free] = -np.linalg.lstsq(now.curve[np.ix_(free, free)], now.slope[free], rcond=None)[0]
        weights, better = _downhill(text, weights, step, now)
        gained, now = now.value - better.value, better
        if gained < CLOSE * costs.shape[1]:
            break
    return Optimum(weights, now.value, equal.value)


def _downhill(text: HeldOut, weights: NDArray[np.float64], step: NDArray[np.float64], now: Nats) -> tuple[NDArray[np.float64], Nats]:
    """The first of the step, its half, its quarter, .. that does not lead up; none if all do."""
    for halves in range(20):
        tried = np.maximum(weights + step / 2**halves, 0)
        found = text.nats(tried) if tried.any() else None
        if found is not None and found.value <= now.value:
            return tried, found
    return weights, now


class Nats(NamedTuple):
    """F, its gradient [J] and its Hessian [J, J]."""

    value: float
    slope: NDArray[np.float64]
    curve: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """What the nats of a text under log-linear mixtures depend on.

    levels    the n-grams of all models
    costs     for each order, what each model asks for them: float64 [J, n]
    backoffs  for each order, what each asks for backing off from the contexts: float64 [J, C]
    seen      for each order, how many tokens follow each context: int64 [C], the longest that is known
    total     float64 [J], the costs of all tokens
    """

    levels: tuple[Grams, ...]
    costs: tuple[NDArray[np.float64], ...]
    backoffs: tuple[NDArray[np.float64], ...]
    seen: tuple[NDArray[np.int64], ...]
    total: NDArray[np.float64]

    @classmethod
    def of(cls, models: Sequence[Tables], total: NDArray[np.float64], texts: Sequence[ArrayLike], eot: int | None) -> HeldOut:
        union = Union.of(models)
        costs, backoffs = zip(*union.costs(models))
        # The states of a model over the union, whatever its costs, are the contexts that the text meets.
        over_all = NGram.from_tables(Tables(levels=union.levels, cost=tuple(cost[0] for cost in costs), backoff=tuple(own[0] for own in backoffs[1:])))
        first = np.cumsum([level.contexts for level in union.levels])
        seen = np.bincount(read(over_all, texts, eot)[1], minlength=first[-1])
        return cls(levels=union.levels, costs=costs, backoffs=backoffs, seen=tuple(np.split(seen, first[:-1])), total=total)

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
        """For the contexts of each order."""
        sums = Sums.of(self.levels[0], self.costs[0], weights)
        yield sums
        for n in range(1, len(self.levels)):
            level, below, backoff = self.levels[n], self.levels[n - 1], self.backoffs[n]
            suffix = _core.suffixes(level.native, below.native, 0, level.contexts)
            shorter = self.costs[n - 1][:, suffix] + backoff[:, level.context()]
            # As though all words were backed off to, then with the level's own in place of these.
            sums = sums.backed_off(level.context_parent, backoff, weights)
            sums = sums.plus(Sums.of(level, self.costs[n], weights), 1).plus(Sums.of(level, shorter, weights), -1)
            yield sums


class Sums(NamedTuple):
    """Over words after each of C contexts: of u [C], of u c_j [J, C], of u c_j c_k [J, J, C]."""

    one: NDArray[np.float64]
    c: NDArray[np.float64]
    cc: NDArray[np.float64]

    @classmethod
    def of(cls, level: Grams, cost: NDArray[np.float64], weights: NDArray[np.float64]) -> Sums:
        """Over the n-grams of an order, at these costs [J, n]."""
        context, u = level.context(), np.exp(-weights @ cost)

        def over(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return np.bincount(context, values, minlength=level.contexts)

        c = [u * own for own in cost]
        return cls(over(u), np.array([over(own) for own in c]), np.array([[over(one * other) for other in cost] for one in c]))

    def backed_off(self, parent: NDArray[np.uint32], b: NDArray[np.float64], weights: NDArray[np.float64]) -> Sums:
        """Of contexts that back off to these, at the costs b [J, C]: u falls to B u, c_j rises to c_j + b_j."""
        one, c, cc = self.one[parent], self.c[:, parent], self.cc[:, :, parent]
        cross = b[:, None] * c
        raised = cc + cross + cross.swapaxes(0, 1) + b[:, None] * b * one
        return Sums(*(np.exp(-weights @ b) * sums for sums in (one, c + b * one, raised)))

    def plus(self, other: Sums, sign: int) -> Sums:
        return Sums(*(mine + sign * theirs for mine, theirs in zip(self, other)))
