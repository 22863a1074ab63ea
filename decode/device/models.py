"""n-gram models on a device: tensors, made once, and look-ups by kernels of a token's cost after a context and the next
state.

A hash table holds all arcs except the roots'. Bucket b begins at WAYS * b; keys that do not fit go into the following
buckets. The table is at most LOAD full. A key takes 8 bytes and so does its value: 16 / LOAD bytes per n-gram, 8 per
state, 8 V per model.

If (h, w) has an arc, so has (h', w). Look-ups therefore begin with the shortest context, and a token without an arc
there is not looked up in longer ones: most tokens take one read. The contexts of a state, its failure chain, are
computed once per state and stored with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from rescore.lm.model.compile import Arrays
from rescore.lm.model.ngram import NGram

LOAD = 0.5
ROOT = -1
EMPTY = tl.constexpr(-1)
WAYS = tl.constexpr(4)  # keys per bucket: 32 bytes, one memory transaction


class ModelTables(NamedTuple):
    """Pointers into a `ResidentModels`. States are numbered across all models; the roots are -1."""

    keys: Any  # int64 [buckets * WAYS and a tail]: state << 32 | token of every arc except the roots', EMPTY
    arcs: Any  # int64, beside keys: packed
    backoffs: Any  # int64 [S]: packed
    roots: Any  # int64 [J, V]: packed, the root's arcs
    buckets: Any  # int32
    vocab_size: Any  # int32


@triton.jit
def pack_cost(packed):
    """The cost, float32, in the lower half. The state, int32, is in the upper half."""
    return (packed & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def pack_state(packed):
    return (packed >> 32).to(tl.int32)


@triton.jit
def bucket_of(key, buckets):
    """The bucket of a key, in [0, buckets). Its `fn` is the same function on torch tensors."""
    # [R, C] int64
    mixed = key * -7046029254386353131
    mixed = (mixed ^ (mixed >> 32)) * -4658895280553007687
    return (((mixed >> 32) & 0xFFFFFFFF) * buckets) >> 32


@triton.jit
def read_bucket(models, key, bucket, place, left):
    """Reads one bucket for each remaining key [R, C]: the places found so far, and the keys that remain."""
    # [1, 1, WAYS] int32
    way = tl.arange(0, WAYS)[None, None, :]
    # [R, C] int64
    first = bucket * WAYS
    # [R, C, WAYS] int64
    stored = tl.load(models.keys + (first[:, :, None] + way), mask=left[:, :, None], other=EMPTY)
    # [R, C] int32
    at = tl.max(tl.where(stored == key[:, :, None], way, -1), axis=2)
    # [R, C] bool
    full = tl.min((stored != EMPTY).to(tl.int32), axis=2) > 0  # keys that do not fit are in the next bucket
    return tl.where(left & (at >= 0), first + at, place), left & (at < 0) & full


@triton.jit
def find(models, state, token, wanted):
    """The place of the arc of each wanted (state, token), int64 [R, C], or -1. state, token: int32, broadcastable to
    [R, C].
    """
    # [R, C] int64
    key = (state.to(tl.int64) << 32) | token.to(tl.int64)
    bucket = bucket_of(key, models.buckets)
    # [R, C] int64, bool
    place, left = read_bucket(models, key, bucket, tl.full(key.shape, -1, tl.int64), wanted)
    while tl.max(left.to(tl.int32)) > 0:
        # [R, C] int64
        bucket += 1
        # [R, C] int64, bool
        place, left = read_bucket(models, key, bucket, place, left)
    return place


@triton.jit
def keep_chain(models, chain, owed, stride, at, state, here, DEPTH: tl.constexpr):
    """Stores states [R] and their backoff states: int32 chain [DEPTH, stride] at `at`, longest first, padded with -1;
    and their costs, float32.
    """
    for d in range(DEPTH):
        tl.store(chain + d * stride + at, state, mask=here)
        # int64, the shape of state
        packed = tl.load(models.backoffs + state, mask=here & (state >= 0), other=-(1 << 32))
        tl.store(owed + d * stride + at, pack_cost(packed), mask=here)
        # int32, the same
        state = pack_state(packed)


@triton.jit
def match(models, model, alpha, chain, owed, stride, at, here, token, listed, DEPTH: tl.constexpr):
    """For tokens [K] after the states [R] stored at `at`: alpha times the cost, float64 [R, K], and the next state
    int32 [R, K].
    """
    # [R, K] int64
    place = tl.full((here & listed).shape, -1, tl.int64)
    # [R, K] float64
    paid = tl.zeros((here & listed).shape, tl.float64)
    # [R, K] bool
    wanted = here & listed
    for d in range(DEPTH):
        # [R, 1] int32
        row = (DEPTH - 1 - d) * stride + at[:, None]
        state = tl.load(chain + row, mask=here, other=-1)
        # [R, 1] float64
        cost = tl.load(owed + row, mask=here, other=0.0).to(tl.float64)
        # [R, 1] bool
        known = state >= 0
        # [R, K] int64
        found = find(models, state, token, wanted & known)
        place = tl.where(found >= 0, found, place)
        # [R, K] float64
        paid = tl.where(known, tl.where(found >= 0, 0.0, paid + cost), paid)
        # [R, K] bool
        wanted = wanted & ((found >= 0) | (known == 0))
    # [1, K] int64
    root = tl.load(models.roots + model * models.vocab_size + token, mask=listed, other=0)
    # [R, K] int64
    packed = tl.where(place >= 0, tl.load(models.arcs + place, mask=place >= 0, other=0), root)
    # [R, K] float64
    cost = pack_cost(packed).to(tl.float64) + paid
    return alpha * cost, pack_state(packed)


@triton.jit
def step(models, model, state, token, DEPTH: tl.constexpr):
    """The states [R, 1] of models [R, 1] after one token, int32 [1, 1]."""
    # [R, 1] int64
    place = tl.full(state.shape, -1, tl.int64)
    # [R, 1] int32
    longer = state
    for _ in range(DEPTH):
        # [R, 1] int64
        found = find(models, longer, token, (longer >= 0) & (place < 0))
        place = tl.where(found >= 0, found, place)
        # [R, 1] int32
        longer = pack_state(tl.load(models.backoffs + longer, mask=longer >= 0, other=-(1 << 32)))
    # [R, 1] int64
    root = tl.load(models.roots + model.to(tl.int64) * models.vocab_size + token)
    return pack_state(tl.where(place >= 0, tl.load(models.arcs + place, mask=place >= 0, other=0), root))


@triton.jit
def start(models, model, history, length, DEPTH: tl.constexpr):
    """The states [R, 1] of models [R, 1] after a history, int32 [length] with padding -1 in front, and how many of its
    tokens no model has.
    """
    # [R, 1] int32
    state = tl.full(model.shape, -1, tl.int32)
    wrong = 0
    begun = 0
    for i in range(tl.maximum(length - DEPTH, 0), length):
        token = tl.load(history + i)
        inside = (token >= 0) & (token < models.vocab_size)
        begun = tl.maximum(begun, (token != -1).to(tl.int32))
        wrong += begun * (inside == 0).to(tl.int32)
        # [R, 1] int32
        after = step(models, model, state, tl.where(inside, token, 0) + tl.zeros((1, 1), tl.int32), DEPTH)
        state = tl.where(inside, after, -1)
    return state, wrong


class ResidentModels:
    """Several models of one vocabulary as one automaton; ValueError from 2^31 states on, the limit of a single model.

    keys, arcs  int64: the table
    backoffs    int64 [S]: backoff state and cost of every state except the roots
    roots       int64 [J, V]: the roots' arcs
    depth       N - 1 of the longest
    ngrams      the models
    """

    def __init__(self, models: Sequence[NGram], device: torch.device):
        self.ngrams = tuple(models)
        self.size = len(models)
        self.vocab_size = models[0].vocab_size if models else (1 << 31) - 1  # without models, any token is valid
        self.depth = max((model.order - 1 for model in models), default=0)
        states = [model.core.num_states - 1 for model in models]
        if sum(states) >= 1 << 31:
            raise ValueError(f"models: expected fewer than 2^31 states together, got {sum(states)}; prune them")
        parts = [_part(model.arrays, offset, device) for model, offset in zip(models, np.cumsum([0, *states]).tolist())]
        none = torch.zeros(0, dtype=torch.int64, device=device)
        self.device = none.device  # as lattices have it: cuda:0, not cuda
        self.backoffs = torch.cat([none, *(part[2] for part in parts)])
        self.roots = (
            torch.stack([part[3] for part in parts]) if parts else torch.zeros(1, 1, dtype=torch.int64, device=device)
        )
        self.buckets, self.keys, self.arcs = _table(
            torch.cat([none, *(part[0] for part in parts)]), torch.cat([none, *(part[1] for part in parts)])
        )

    @property
    def pointers(self) -> ModelTables:
        """The kernels' arguments."""
        return ModelTables(self.keys, self.arcs, self.backoffs, self.roots, self.buckets, self.vocab_size)

    @property
    def bytes(self) -> int:
        """Device memory in bytes."""
        return sum(
            tensor.numel() * tensor.element_size() for tensor in (self.keys, self.arcs, self.backoffs, self.roots)
        )


_shared: WeakValueDictionary[tuple[torch.device, tuple[int, ...]], ResidentModels] = WeakValueDictionary()


def resident_models(models: Sequence[NGram], device: torch.device) -> ResidentModels:
    """Returns the models on a device; one copy is shared by all users."""
    key = device, tuple(map(id, models))  # a copy keeps its models alive, so ids are not reused
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = ResidentModels(models, device)
    return found


def _part(arrays: Arrays, offset: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Arrays of one model, with states numbered from `offset`: keys and packed arcs, packed backoffs and roots."""
    _check(arrays)
    begin = torch.from_numpy(arrays.arc_begin.astype(np.int64)).to(device)
    token, cost, after = (
        torch.from_numpy(values).to(device)
        for values in (arrays.arc_token.astype(np.int32), arrays.arc_cost, _numbered(arrays.arc_next, offset))
    )
    packed = _packed(after, cost)
    vocab_size = int(arrays.arc_begin[1])
    state = torch.arange(offset, offset + len(begin) - 2, device=device)
    keys = (torch.repeat_interleave(state, begin[2:] - begin[1:-1]) << 32) | token[vocab_size:].long()
    owed = torch.from_numpy(arrays.backoff_cost).to(device)
    backoffs = _packed(torch.from_numpy(_numbered(arrays.backoff_state, offset)[1:]).to(device), owed[1:])
    return keys, packed[vocab_size:], backoffs, packed[:vocab_size]


def _check(arrays: Arrays) -> None:
    """ValueError for arrays that would make a kernel read out of bounds: a file may be opened without a full check."""
    states, arcs = len(arrays.arc_begin) - 1, len(arrays.arc_token)
    for name, values, limit in (
        ("arc_token", arrays.arc_token, int(arrays.arc_begin[1])),
        ("arc_next", arrays.arc_next, states),
        ("backoff_state", arrays.backoff_state, states),
        ("arc_begin", arrays.arc_begin, arcs + 1),
    ):
        if (greatest := int(values.max())) >= limit:
            raise ValueError(
                f"model: {name}: expected numbers below {limit}, got {greatest}; "
                "check its file with `rescore lm verify`"
            )
    if (arrays.arc_begin[1:] < arrays.arc_begin[:-1]).any() or int(arrays.arc_begin[-1]) != arcs:
        raise ValueError(
            f"model: arc_begin: expected numbers that never decrease, up to {arcs} arcs; "
            "check its file with `rescore lm verify`"
        )


def _numbered(states: np.ndarray, offset: int) -> np.ndarray:
    """A model's own state numbers, renumbered across all models, int32."""
    return np.where(states == 0, ROOT, states.astype(np.int64) - 1 + offset).astype(np.int32)


def _packed(state: Tensor, cost: Tensor) -> Tensor:
    """int64: a state in the upper half, the bits of a cost in the lower half."""
    return (state.long() << 32) | (cost.view(torch.int32).long() & 0xFFFFFFFF)


def _table(keys: Tensor, arcs: Tensor) -> tuple[int, Tensor, Tensor]:
    """The number of buckets, and the table's keys and arcs.

    In the order of buckets, each key takes the first free place from its bucket on: place i is max(place i-1 + 1, WAYS
    * bucket i). Its difference to i is a running maximum.
    """
    ways = int(WAYS.value)
    buckets = max(1, int(np.ceil(len(keys) / (LOAD * ways))))
    bucket = bucket_of.fn(keys, buckets)
    bucket, order = bucket.sort()
    number = torch.arange(len(keys), device=keys.device)
    place = (bucket * ways - number).cummax(0).values + number if len(keys) else number
    last = int(place[-1]) if len(keys) else 0
    size = (max(last // ways + 1, buckets) + 1) * ways  # an empty bucket ends the last search
    table = torch.full((size,), int(EMPTY.value), dtype=torch.int64, device=keys.device)
    values = torch.zeros(size, dtype=torch.int64, device=keys.device)
    table[place], values[place] = keys[order], arcs[order]
    return buckets, table, values
