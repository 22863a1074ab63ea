"""Growth of a tree under any q: a pool of prefixes in order of (depth, ranks), whose n cheapest are the tree.

A slot's children compete with the pool: the n cheapest of both are kept, ties to the earlier ones. This is exact: a
prefix never costs less than its parent, so a prefix preceded by n others, and its descendants, are not in the tree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from rescore import _core

IMPOSSIBLE = tl.constexpr(_core.IMPOSSIBLE)
MAX_WEIGHT = tl.constexpr(_core.MAX_WEIGHT)  # nats
ONE = tl.constexpr(_core.FIXED_ONE)
ROUNDER = tl.constexpr(1.5 * (1 << 20))  # float64 of this size are 2^-32 apart


@triton.jit
def round_nats(nats):
    """Rounds float64 nats to the nearest unit, halves to even; +inf beyond MAX_WEIGHT and for NaN.

    Sums of the results are exact up to 2^21.
    """
    return tl.where(tl.abs(nats) <= MAX_WEIGHT, (nats + ROUNDER) - ROUNDER, float("inf"))


@triton.jit
def to_fixed(nats):
    """Converts rounded float64 nats to units, int64; +inf to IMPOSSIBLE."""
    possible = nats < float("inf")
    return tl.where(possible, (tl.where(possible, nats, 0.0) * ONE).to(tl.int64), IMPOSSIBLE)


@triton.jit
def to_nats(weight):
    """Converts units to nats, float64."""
    return weight.to(tl.float64) / ONE


# (node, candidate) pairs per program and step: 4 per thread, which fit in its registers.
MOST_LANES = 1024
# Fused multiply-adds would round differently from the CPU.
EXACT = {"enable_fp_fusion": False, "num_stages": 1}


def power_of_two(n: int) -> int:
    """The least power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def warps(lanes: int) -> int:
    return 8 if lanes > 512 else 4


Room = Callable[..., Tensor]
"""Makes uninitialised tensors for each of B lattices, int32 unless `dtype` says otherwise. They come from PyTorch's
allocator, so that a captured graph owns them."""


@triton.jit
def count_upto(left, left_size, right, right_size, most, BLOCK: tl.constexpr):
    """How many weights int64 of two lists are at most `most`. One reduction, since reductions dominate the time."""
    # [BLOCK] int32
    counts = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, tl.maximum(left_size, right_size), BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        counts += (tl.load(left + i, mask=i < left_size, other=IMPOSSIBLE) <= most).to(tl.int32)
        counts += (tl.load(right + i, mask=i < right_size, other=IMPOSSIBLE) <= most).to(tl.int32)
    return tl.sum(counts)


@triton.jit
def span(left, left_size, right, right_size, BLOCK: tl.constexpr):
    """The least and the greatest possible weight of two lists; IMPOSSIBLE and -IMPOSSIBLE if there is none."""
    # [BLOCK] int64
    least, most = tl.full((BLOCK,), IMPOSSIBLE, tl.int64), tl.full((BLOCK,), -IMPOSSIBLE, tl.int64)
    for first in range(0, tl.maximum(left_size, right_size), BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        # [BLOCK] int64
        a = tl.load(left + i, mask=i < left_size, other=IMPOSSIBLE)
        b = tl.load(right + i, mask=i < right_size, other=IMPOSSIBLE)
        least = tl.minimum(least, tl.minimum(a, b))
        most = tl.maximum(
            most, tl.maximum(tl.where(a < IMPOSSIBLE, a, -IMPOSSIBLE), tl.where(b < IMPOSSIBLE, b, -IMPOSSIBLE))
        )
    return tl.min(least), tl.max(most)


@triton.jit
def threshold(left, left_size, right, right_size, n, BLOCK: tl.constexpr):
    """The n-th smallest of two lists of weights, or the greatest possible one if there are fewer.

    Bisection stops at any weight that exactly n do not exceed: the greatest of these is not needed.
    """
    least, most = span(left, left_size, right, right_size, BLOCK)
    low = least - 1  # fewer than n are at most `low`; if more than n are possible, at least n are at most `most`
    count = count_upto(left, left_size, right, right_size, most, BLOCK)
    while (count > n) & (most - low > 1):
        middle = low + (most - low) // 2
        here = count_upto(left, left_size, right, right_size, middle, BLOCK)
        low = tl.where(here < n, middle, low)
        most = tl.where(here < n, most, middle)
        count = tl.where(here < n, count, here)
    return most


@triton.jit
def choose(weights, size, most, ties, chosen, BLOCK: tl.constexpr):
    """Writes the indices of the weights below `most`, and of the first `ties` equal to it, to `chosen`; returns their
    number.
    """
    found = 0
    for first in range(0, size, BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        # [BLOCK] int64
        weight = tl.load(weights + i, mask=i < size, other=IMPOSSIBLE)
        # [BLOCK] int32
        equal = ((weight == most) & (weight < IMPOSSIBLE)).to(tl.int32)
        # [BLOCK] bool
        kept = (weight < most) | ((equal > 0) & (tl.cumsum(equal, 0) <= ties))
        ties = tl.maximum(ties - tl.sum(equal), 0)
        # [BLOCK] int32
        place = found + tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(chosen + place, i, mask=kept)
        found += tl.sum(kept.to(tl.int32))
    return found


class Pool(NamedTuple):
    """Pointers to the workspace of one lattice's tree. N_PAD: a power of two, at least n."""

    cost: Any  # int64 [T * N_PAD]
    parent: Any  # int32, in the pool, or -1
    token: Any  # int32
    depth: Any  # int32
    place: Any  # int32, in the tree
    child_cost: Any  # int64 [N_PAD, K_PAD], children of the live prefixes (the last slot's), by prefix and rank
    live_cost: Any  # int64 [N_PAD]
    chosen: Any  # int32 [N_PAD]


class TreeOut(NamedTuple):
    """Pointers to one lattice's tree."""

    tokens: Any  # int32 [n], padding -1
    parents: Any  # int32 [n], padding -1
    depths: Any  # int32 [n], padding 0
    logq: Any  # float32 [n], padding -inf
    count: Any  # int32 []
    invalid: Any  # bool []


@triton.jit
def pool_of(pools, b, slots, N_PAD: tl.constexpr, K_PAD: tl.constexpr):
    at = b * slots * N_PAD
    return Pool(
        pools.cost + at,
        pools.parent + at,
        pools.token + at,
        pools.depth + at,
        pools.place + at,
        pools.child_cost + b * N_PAD * K_PAD,
        pools.live_cost + b * N_PAD,
        pools.chosen + b * N_PAD,
    )


@triton.jit
def out_of(outs, b, n):
    return TreeOut(
        outs.tokens + b * n,
        outs.parents + b * n,
        outs.depths + b * n,
        outs.logq + b * n,
        outs.count + b,
        outs.invalid + b,
    )


@triton.jit
def best_children(pool, size, live, n, K_PAD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Chooses the children to keep beside the pool's first `size` prefixes; returns their number.

    `child_cost` has whole blocks of ROWS.
    """
    children = tl.cdiv(live, ROWS) * ROWS * K_PAD
    most = threshold(pool.cost, size, pool.child_cost, children, n, BLOCK)
    ties = (
        n
        - count_upto(pool.cost, size, pool.cost, 0, most, BLOCK)
        - count_upto(pool.child_cost, children, pool.cost, 0, most - 1, BLOCK)
    )
    return choose(pool.child_cost, children, most, ties, pool.chosen, BLOCK)


@triton.jit
def add_children(lattice, pool, t, size, live, at, here, K_PAD: tl.constexpr):
    """Appends the children chosen at `at` to the pool and makes them the live prefixes. Returns their edges."""
    # [R] int32
    child = tl.load(pool.chosen + at, mask=here, other=0)
    # [R] int64
    cost = tl.load(pool.child_cost + child, mask=here, other=0)
    tl.store(pool.live_cost + at, cost, mask=here)
    tl.store(pool.cost + size + at, cost, mask=here)
    tl.store(pool.parent + size + at, tl.where(t > 0, size - live + child // K_PAD, -1), mask=here)
    tl.store(
        pool.token + size + at, tl.load(lattice.ids + t * lattice.width + child % K_PAD, mask=here, other=0), mask=here
    )
    tl.store(pool.depth + size + at, t + 1, mask=here)
    return child


@triton.jit
def write_tree(pool, out, size, n, N_PAD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Writes the n cheapest prefixes of the pool, in order of (cost, depth, ranks)."""
    most = threshold(pool.cost, size, pool.cost, 0, n, BLOCK)
    ties = n - count_upto(pool.cost, size, pool.cost, 0, most - 1, BLOCK)
    count = choose(pool.cost, size, most, ties, pool.chosen, BLOCK)
    tl.debug_barrier()
    for first in range(0, n, ROWS):
        # [ROWS] int32
        at = first + tl.arange(0, ROWS)
        # [ROWS] bool
        here = at < count
        # [ROWS] int32
        node = tl.load(pool.chosen + at, mask=here, other=0)
        # [ROWS] int64
        cost = tl.load(pool.cost + node, mask=here, other=IMPOSSIBLE)
        # [ROWS] int32
        place = tl.zeros((ROWS,), tl.int32)
        for other in range(0, count, ROWS):
            # [ROWS] int32
            rival = other + tl.arange(0, ROWS)
            # [ROWS] int64
            theirs = tl.load(
                pool.cost + tl.load(pool.chosen + rival, mask=rival < count, other=0),
                mask=rival < count,
                other=IMPOSSIBLE,
            )
            # [ROWS, ROWS] bool
            before = (theirs[None, :] < cost[:, None]) | (
                (theirs[None, :] == cost[:, None]) & (rival[None, :] < at[:, None])
            )
            # [ROWS] int32
            place += tl.sum(before.to(tl.int32), axis=1)
        tl.store(pool.place + node, place, mask=here)
        tl.store(out.tokens + place, tl.load(pool.token + node, mask=here, other=-1), mask=here)
        tl.store(out.depths + place, tl.load(pool.depth + node, mask=here, other=0), mask=here)
        tl.store(out.logq + place, -to_nats(cost).to(tl.float32), mask=here)
        tl.store(out.tokens + at, -1, mask=(at >= count) & (at < n))
        tl.store(out.parents + at, -1, mask=(at >= count) & (at < n))
        tl.store(out.depths + at, 0, mask=(at >= count) & (at < n))
        tl.store(out.logq + at, -float("inf"), mask=(at >= count) & (at < n))
    tl.debug_barrier()
    for first in range(0, count, ROWS):
        # [ROWS] int32
        at = first + tl.arange(0, ROWS)
        # [ROWS] bool
        here = at < count
        # [ROWS] int32
        node = tl.load(pool.chosen + at, mask=here, other=0)
        above = tl.load(pool.parent + node, mask=here, other=-1)
        tl.store(
            out.parents + tl.load(pool.place + node, mask=here, other=0),
            tl.load(pool.place + above, mask=here & (above >= 0), other=-1),
            mask=here,
        )
    tl.store(out.count, count)


def pool_room(room: Room, slots: int, n_pad: int, k_pad: int) -> Pool:
    long = torch.int64
    return Pool(
        cost=room(slots, n_pad, dtype=long),
        parent=room(slots, n_pad),
        token=room(slots, n_pad),
        depth=room(slots, n_pad),
        place=room(slots, n_pad),
        child_cost=room(n_pad, k_pad, dtype=long),
        live_cost=room(n_pad, dtype=long),
        chosen=room(n_pad),
    )


def tree_out(room: Room, n: int) -> TreeOut:
    return TreeOut(
        tokens=room(n),
        parents=room(n),
        depths=room(n),
        logq=room(n, dtype=torch.float32),
        count=room(),
        invalid=room(dtype=torch.bool),
    )
