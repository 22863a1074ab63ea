"""Rescoring of lattices in arrays, by the native core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.decode.draft.normalised import NormalisedLattice
from rescore.lattice.drafts import Drafts
from rescore.lattice.sausage import Sausage
from rescore.lattice.token_ids import ALL, token_ids
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram

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


class ArrayRescorer:
    """The searches of `Rescorer` on arrays; arguments as there."""

    def __init__(self, models: Sequence[NGram], *, alpha: ArrayLike, head: ArrayLike, threads: int):
        self.vocab_size = max((model.vocab_size for model in models), default=ALL)
        self.models = tuple(model.widened(self.vocab_size) for model in models)
        self.alpha = checked_alpha(alpha, len(self.models))
        self.head = checked_head(head)
        self.threads = threads
        self._plain_head = bool((self.head == 1).all())
        self._cores = [model.core for model in self.models]
        self._alpha_of_slots: dict[int, NDArray[np.float64]] = {}

    def paths(self, sausage: Sausage, history: ArrayLike, p: int, out: Drafts | None = None) -> Drafts:
        """The p best distinct paths."""
        if out is None:
            _expect_within("paths p", p, _core.MAX_PATHS)
            shape = sausage.ids.shape[:-2]
            tokens, cost = np.empty((*shape, p, sausage.slots), np.int32), np.empty((*shape, p), np.float32)
            out = Drafts(tokens=tokens, cost=cost, count=np.empty(shape, np.int32))
        answer = out.tokens, out.cost, out.count
        if not sausage.is_batch:
            answer = out.tokens[None], out.cost[None], out.count[None]
        _core.best_paths(*self._call(sausage, history), paths=p, threads=self.threads, out=answer)
        return out

    def trees(self, sausage: Sausage, history: ArrayLike, n: int, out: Trees | None = None) -> Trees:
        """The trees of the n most probable prefixes; a batch even for a single sausage."""
        if out is None:
            _expect_within("nodes", n, _core.MAX_NODES)
            out = Trees.empty(sausage.batch_size if sausage.is_batch else 1, n)
        _core.best_tree(*self._call(sausage, history), nodes=n, threads=self.threads, out=out.columns)
        return out

    def normalise(self, sausage: Sausage, history: ArrayLike, temperature: float, local: bool) -> NormalisedLattice:
        """The lattices as distributions over their drafts."""
        call, threads = self._call(sausage, history), self.threads
        core = _core.Normalised(*call, temperature=temperature, local=local, threads=threads)
        return NormalisedLattice(core, ids=sausage.ids, local=local, threads=threads)

    def states(self, histories: NDArray[np.int32]) -> NDArray[np.uint32]:
        """The start states of every model, uint32 [J, B], for histories [B, n] with padding -1 in front."""
        states = np.empty((len(self._cores), len(histories)), np.uint32)
        for row, core in zip(states, self._cores):
            core.start_batch(histories, self.threads, row)
        return states

    def _call(self, sausage: Sausage, history: ArrayLike) -> tuple[Any, ...]:
        ids, cost = (sausage.ids, sausage.cost) if sausage.is_batch else (sausage.ids[None], sausage.cost[None])
        histories = token_ids(history, "history", self.vocab_size)
        histories = histories if histories.ndim == 2 else histories[None]
        if histories.ndim != 2 or len(histories) != len(ids):
            raise ValueError(
                f"history: expected one row for each of {len(ids)} lattices, got shape {list(np.shape(history))}"
            )
        return self._cores, histories, ids, self._weighed(ids, cost), self._alpha(ids.shape[1])

    def _weighed(self, ids: NDArray[np.int32], cost: NDArray[np.float32]) -> NDArray[np.float32]:
        """The heads' costs [B, T, K] times their weights; padding stays +inf."""
        if self.head.size not in (1, ids.shape[1]):
            raise ValueError(f"head: expected a weight for each of {ids.shape[1]} slots, got {self.head.size}")
        if self._plain_head:
            return cost
        listed = ids >= 0
        return np.where(listed, np.where(listed, cost, 0) * self.head.astype(np.float32)[:, None], np.float32(np.inf))

    def _alpha(self, slots: int) -> NDArray[np.float64]:
        if slots not in self._alpha_of_slots:
            self._alpha_of_slots[slots] = alpha_of_slots(self.alpha, slots)
        return self._alpha_of_slots[slots]


def _expect_within(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise ValueError(f"{name}: expected 1 to {most}, got {value}")
