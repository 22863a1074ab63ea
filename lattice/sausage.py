"""The sausage lattice (confusion network): T slots, each with up to K candidates and their costs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.checked import numbers, whole
from rescore.lattice.short_repr import picture, short_repr
from rescore.lattice.top import slot_of_probabilities, top_of_logits

MAX_SLOTS = 32
MAX_WIDTH = 64
MAX_COST = 1e6  # nats; keeps path sums exact enough in float32; a greater cost is a mistake of the caller
PADDING = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sausage:
    """One lattice [T, K] or a batch of them [B, T, K].

    ids  int32, the candidates of each slot in order of rank, in [0, V); padding -1 at the end of a slot.
    cost float32, -ln p(candidate), ascending within a slot, finite, at most 1e6 in magnitude; +inf on the padding.

    Slots may differ in width, and lattices of a batch in length. A slot without candidates ends its lattice; all later
    slots must be empty. No id occurs twice in a slot. T <= 32, K <= 64.
    """

    ids: NDArray[np.int32]
    cost: NDArray[np.float32]
    next: ClassVar[None] = None  # as in `Lattice`: a candidate leads to the slot behind its own

    __repr__ = short_repr
    _repr_svg_ = picture

    def __post_init__(self) -> None:
        _check_arrays(self.ids, self.cost)
        object.__setattr__(self, "ids", np.ascontiguousarray(self.ids))
        object.__setattr__(self, "cost", np.ascontiguousarray(self.cost))
        _check_padding(self.ids, self.cost)
        _check_values(self.ids, self.cost)
        falling = np.zeros(self.ids.shape, bool)
        falling[..., 1:] = self.cost[..., 1:] < self.cost[..., :-1]
        _refuse(falling, "cost", "is less than the cost before it: expected order of rank; from_topk sorts candidates")

    @classmethod
    def from_logits(cls, logits: Any, k: int) -> Sausage:
        """The k best tokens of each slot of full-vocabulary logits [T, V] or [B, T, V], cost = -ln softmax over all V.

        logits: float16, float32, float64 or bfloat16, an array or a tensor on any device. Equal logits rank by id.
        Costs are not renormalised over the k. ValueError names a NaN, a +inf, or a -inf among the k best.
        """
        k = whole(k, "k", 1, MAX_WIDTH)
        ids, logp, _ = top_of_logits(logits, k)
        return cls(ids=ids, cost=-logp)

    @classmethod
    def from_topk(cls, ids: Any, logp: Any, *, vocab_size: int | None = None) -> Sausage:
        """Builds a sausage from top-k arrays.

        ids [T, K] or [B, T, K] of any integer type, logp of the same shape and any float type. Padding is id -1, whose
        logp is ignored. Slots that are out of order are sorted by logp (stable). `logp` may also be raw logits: a
        constant per slot changes no ranking.
        """
        ids, logp = numbers(ids, "ids"), numbers(logp, "logp", "f")
        if ids.shape != logp.shape:
            raise ValueError(f"logp: expected the shape of ids, {list(ids.shape)}, got {list(logp.shape)}")
        limit = np.iinfo(np.int32).max if vocab_size is None else whole(vocab_size, "vocab_size", 1) - 1
        _refuse((ids > limit) | (ids < PADDING), "ids", f"is not in 0..{limit} (nor the padding {PADDING})", ids)
        padding = ids == PADDING
        _refuse(np.isnan(logp) & ~padding, "logp", "is NaN: expected a finite log-probability")
        _refuse(
            np.isinf(logp) & ~padding,
            "logp",
            "is infinite: expected a finite log-probability; mark a missing candidate with id -1",
            logp,
        )
        _refuse_probabilities(logp, padding)
        cost = np.where(padding, np.inf, -logp.astype(np.float64))
        _refuse(np.isfinite(cost) & (abs(cost) > MAX_COST), "logp", f"is beyond {MAX_COST:g} nats", logp)
        cost = cost.astype(np.float32)
        ids = ids.astype(np.int32)
        if cost.ndim and (cost[..., 1:] < cost[..., :-1]).any():
            order = np.argsort(cost, axis=-1, kind="stable")
            ids, cost = np.take_along_axis(ids, order, -1), np.take_along_axis(cost, order, -1)
        return cls(ids=ids, cost=cost)

    @classmethod
    def batch(cls, sausages: Iterable[Sausage]) -> Sausage:
        """Stacks single sausages into one batch [B, T, K], padded to the longest and widest."""
        parts = list(sausages)
        if not parts or any(part.is_batch for part in parts):
            raise ValueError("batch: expected one or more single sausages [T, K]")
        shape = (len(parts), max(part.slots for part in parts), max(part.width for part in parts))
        ids = np.full(shape, PADDING, np.int32)
        cost = np.full(shape, np.inf, np.float32)
        for row, part in enumerate(parts):
            ids[row, : part.slots, : part.width] = part.ids
            cost[row, : part.slots, : part.width] = part.cost
        return unchecked_sausage(ids, cost)

    @property
    def is_batch(self) -> bool:
        return self.ids.ndim == 3

    @property
    def batch_size(self) -> int:
        """B; TypeError for a single sausage."""
        if not self.is_batch:
            raise TypeError("a single sausage [T, K] has no batch size; Sausage.batch([it]) makes a batch of one")
        return self.ids.shape[0]

    @property
    def slots(self) -> int:
        """T, trailing empty slots included."""
        return self.ids.shape[-2]

    @property
    def width(self) -> int:
        """K, padding included."""
        return self.ids.shape[-1]

    @property
    def widths(self) -> NDArray[np.int32]:
        """Number of candidates per slot, int32 [T] or [B, T]."""
        return (self.ids >= 0).sum(axis=-1, dtype=np.int32)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Number of slots with candidates, int32 [] or [B]."""
        return (self.ids[..., 0] >= 0).sum(axis=-1, dtype=np.int32)

    @property
    def first(self) -> NDArray[np.int32]:
        """The base draft, the first candidate of every slot: int32 [T] or [B, T], padding -1."""
        return np.ascontiguousarray(self.ids[..., 0])

    def top_k(self, k: int) -> Sausage:
        """The first k candidates of every slot (all if there are fewer)."""
        if whole(k, "k", most=sys.maxsize) < 1:
            raise ValueError(f"top_k: expected k >= 1, got {k}")
        return unchecked_sausage(self.ids[..., :k], self.cost[..., :k])

    def head(self, slots: int) -> Sausage:
        """The first `slots` slots (all if there are fewer)."""
        slots = whole(slots, "head", 1, sys.maxsize)
        return unchecked_sausage(self.ids[..., :slots, :], self.cost[..., :slots, :])

    def __getitem__(self, index: int | slice | Sequence[int] | NDArray) -> Sausage:
        """One sausage of a batch (an integer), or a smaller batch (a slice, integers or a mask)."""
        if not self.is_batch:
            raise TypeError("a single sausage [T, K] cannot be indexed; read its ids and cost")
        if isinstance(index, tuple):
            raise TypeError(f"a batch of sausages takes one index, got {len(index)}; read its ids and cost")
        return unchecked_sausage(self.ids[index], self.cost[index])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lattice:
    """A batch of deterministic lattices of any shape: S states each, in topological order from the first one, with up
    to K arcs. Behind a path that leaves its lattice nothing is known.

    ids   int32 [B, S, K], the tokens of a state's arcs, different ones; padding -1 behind them
    cost  float32, -ln p of each after its state; +inf on the padding
    next  int32, the later state to which each arc leads; -1: to none
    """

    ids: NDArray[np.int32]
    cost: NDArray[np.float32]
    next: NDArray[np.int32]

    __repr__ = short_repr

    @property
    def slots(self) -> int:
        """S."""
        return self.ids.shape[1]


def blank(lattices: int) -> Sausage:
    """A batch of lattices without slots: of a model without heads."""
    return unchecked_sausage(np.empty((lattices, 0, 1), np.int32), np.empty((lattices, 0, 1), np.float32))


def unchecked_sausage(ids: NDArray, cost: NDArray) -> Sausage:
    """A sausage from arrays that need no checks: slices of checked ones, or arrays that the caller vouches for."""
    sausage = object.__new__(Sausage)
    object.__setattr__(sausage, "ids", np.ascontiguousarray(ids))
    object.__setattr__(sausage, "cost", np.ascontiguousarray(cost))
    return sausage


def _check_arrays(ids: Any, cost: Any) -> None:
    for name, array, dtype in (("ids", ids, np.int32), ("cost", cost, np.float32)):
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            got = getattr(array, "dtype", type(array).__name__)
            raise TypeError(f"{name}: expected a numpy array of {np.dtype(dtype)}, got {got}; from_topk converts")
    if ids.ndim not in (2, 3):
        raise ValueError(f"ids: expected shape [T, K] or [B, T, K], got {list(ids.shape)}")
    if cost.shape != ids.shape:
        raise ValueError(f"cost: expected the shape of ids, {list(ids.shape)}, got {list(cost.shape)}")
    whole(ids.shape[-2], "slots T", 1, MAX_SLOTS)
    whole(ids.shape[-1], "candidates K", 1, MAX_WIDTH)


def _refuse_probabilities(logp: NDArray, padding: NDArray[np.bool_]) -> None:
    if logp.ndim < 2 or not logp.size:
        return
    values = np.where(padding, 0, logp)
    values[..., 0] += padding.all(axis=-1)  # an empty slot says nothing
    if (slot := slot_of_probabilities(values.reshape(-1, *values.shape[-2:]))) is not None:
        raise ValueError(
            f"logp[.., {slot}, :], head {slot + 1}: expected log-probabilities, got probabilities that sum to 1; take "
            "their logarithm"
        )


def _check_padding(ids: NDArray, cost: NDArray) -> None:
    padding = ids < 0
    _refuse(ids < PADDING, "ids", f"is neither a token nor the padding {PADDING}", ids)
    _refuse(padding & (cost != np.inf), "cost", "belongs to padding (id -1) and must be +inf", cost)
    inside = np.zeros(ids.shape, bool)
    inside[..., 1:] = padding[..., :-1] & ~padding[..., 1:]
    _refuse(inside, "ids", "follows padding: candidates come first in their slot")
    gap = padding[..., :-1, 0] & ~padding[..., 1:, 0]
    _refuse(gap, "ids", "is an empty slot before one with candidates: expected empty slots only at the end")


def _check_values(ids: NDArray, cost: NDArray) -> None:
    real = ids >= 0
    _refuse(np.isnan(cost), "cost", "is NaN")
    _refuse(real & ~(abs(cost) <= MAX_COST), "cost", f"is not a finite cost of at most {MAX_COST:g} nats", cost)
    order = np.sort(ids, axis=-1)
    if ((order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)).any():
        same = (ids[..., :, None] == ids[..., None, :]) & np.tri(ids.shape[-1], k=-1, dtype=bool)
        _refuse(same.any(-1) & real, "ids", "occurs twice in its slot", ids)


def _refuse(bad: NDArray, name: str, what: str, values: NDArray | None = None) -> None:
    """Raises ValueError naming the first position where `bad` is true."""
    if not bad.any():
        return
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    value = "" if values is None else f" = {values[index]}"
    raise ValueError(f"{name}{list(index)}{value} {what}")


def ranks(sausage: Sausage, truth: NDArray) -> NDArray[np.int32]:
    """Rank of the true token in each slot, int32 [T] or [B, T]: 0 for the first candidate, -1 if it is not among them.

    truth: integers [T] or [B, T], padding -1 after the end of the text. The rank of padding is -1.
    """
    truth = _fit(sausage, truth)
    found = (sausage.ids == truth[..., None]) & (truth[..., None] >= 0)
    return np.where(found.any(-1), found.argmax(-1), -1).astype(np.int32)


def oracle_lengths(sausage: Sausage, truth: NDArray) -> NDArray[np.int32]:
    """Length of the longest prefix of the truth that the candidates allow: int32 [] or [B]."""
    return oracle_by_width(sausage, truth)[..., -1]


def oracle_by_width(sausage: Sausage, truth: NDArray) -> NDArray[np.int32]:
    """The oracle length for every k: int32 [K] or [B, K], entry k - 1 for the first k candidates; it never falls."""
    rank = ranks(sausage, truth)
    needed = np.maximum.accumulate(np.where(rank < 0, sausage.width, rank), axis=-1)  # greatest rank along the prefix
    return (needed[..., None] < np.arange(1, sausage.width + 1)).sum(axis=-2, dtype=np.int32)


def _fit(sausage: Sausage, truth: NDArray) -> NDArray:
    """The truth cut or padded to the slots of the sausage."""
    truth = numbers(truth, "truth")
    if truth.shape[:-1] != sausage.ids.shape[:-2] or truth.ndim != sausage.ids.ndim - 1:
        want = "[B, T]" if sausage.is_batch else "[T]"
        raise ValueError(f"truth: expected shape {want} for ids {list(sausage.ids.shape)}, got {list(truth.shape)}")
    missing = sausage.slots - truth.shape[-1]
    if missing > 0:
        truth = np.concatenate([truth.astype(np.int64), np.full((*truth.shape[:-1], missing), -1)], axis=-1)
    return truth[..., : sausage.slots]
