"""n-gram models in kernels: the cost of a token after a context, and the next state.

If (h, w) has an arc, so has (h', w). Look-ups therefore begin with the shortest context, and a token without an arc
there is not looked up in longer ones: most tokens take one read. The contexts of a state, its failure chain, are
computed once per state and stored with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from rescore.decode.device.launch import rounded

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
def part(cost, alpha, PARTS: tl.constexpr):
    """The contribution of an arc of this cost, float32, to a weight: float64."""
    # as cost, float64
    nats = cost.to(tl.float64)
    return rounded(alpha * nats) if PARTS else nats


@triton.jit
def match(models, model, alpha, chain, owed, stride, at, here, token, listed, DEPTH: tl.constexpr, PARTS: tl.constexpr):
    """For tokens [K] after the states [R] stored at `at`: alpha times the cost, float64 [R, K], and the next state
    int32 [R, K].

    PARTS: the product of each arc, failure arcs included, is rounded, as in the core's search of paths; otherwise their
    sum is not rounded.
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
        cost = part(tl.load(owed + row, mask=here, other=0.0), alpha, PARTS)
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
    cost = part(pack_cost(packed), alpha, PARTS) + paid
    return cost if PARTS else alpha * cost, pack_state(packed)


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
