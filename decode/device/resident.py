"""n-gram models as tensors on a device, made once, for look-ups by kernels.

A hash table holds all arcs except the roots'. Bucket b begins at WAYS * b; keys that do not fit go into the following
buckets. The table is at most LOAD full. A key takes 8 bytes and so does its value: 16 / LOAD bytes per n-gram, 8 per
state, 8 V per model.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from rescore.decode.device.look_up import EMPTY, WAYS, ModelTables, bucket_of
from rescore.lm.model.compile import Arrays
from rescore.lm.model.ngram import NGram

LOAD = 0.5
ROOT = -1


class ResidentModels:
    """Several models of one vocabulary as one automaton; ValueError from 2^31 states on, the limit of a single model.

    keys, arcs  int64: the table
    backoffs    int64 [S]: backoff state and cost of every state except the roots
    roots       int64 [J, V]: the roots' arcs
    depth       N - 1 of the longest
    ngrams      the models
    """

    def __init__(self, models: Sequence[NGram], device: torch.device):
        self.device = device
        self.ngrams = tuple(models)
        self.size = len(models)
        self.vocab_size = models[0].vocab_size if models else (1 << 31) - 1  # without models, any token is valid
        self.depth = max((model.order - 1 for model in models), default=0)
        states = [model.core.num_states - 1 for model in models]
        if sum(states) >= 1 << 31:
            raise ValueError(f"models: expected fewer than 2^31 states together, got {sum(states)}; prune them")
        parts = [_part(model.arrays, offset, device) for model, offset in zip(models, np.cumsum([0, *states]).tolist())]
        none = torch.zeros(0, dtype=torch.int64, device=device)
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
