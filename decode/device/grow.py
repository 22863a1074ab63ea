"""Trees of the n most probable prefixes under q(w | prefix) = softmax over the slot's candidates of -(cost + alpha LM).

One program grows a lattice's tree, slot by slot (pool.py), and computes only the children of live prefixes.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from rescore.decode.device.models import ResidentModels, keep_chain, match, start
from rescore.decode.device.pool import (
    EXACT,
    IMPOSSIBLE,
    MOST_LANES,
    add_children,
    best_children,
    out_of,
    pool_of,
    pool_room,
    power_of_two,
    round_nats,
    to_fixed,
    to_nats,
    tree_out,
    warps,
    write_tree,
)
from rescore.lattice.tensors import TensorTrees


class DeviceLattices(NamedTuple):
    """Pointers to one lattice, or to the first of a batch (before `lattice_of`), and its weights."""

    ids: Any  # int32 [T, K], padding -1
    cost: Any  # float32 [T, K]
    head: Any  # float32 [T]
    alpha: Any  # float64 [J, T]
    history: Any  # int32 [length], padding -1 in front
    slots: Any  # T
    width: Any  # K
    length: Any


@triton.jit
def precedes(t, end):
    """Whether t < end, as a block of one, for masks: the interpreter turns `mask & scalar` into integers."""
    return tl.full((1,), t, tl.int32) < end


@triton.jit
def lattice_of(batch, b):
    """Lattice b of a batch."""
    at = b * batch.slots * batch.width
    history = batch.history + b * batch.length
    return DeviceLattices(
        batch.ids + at, batch.cost + at, batch.head, batch.alpha, history, batch.slots, batch.width, batch.length
    )


@triton.jit
def slot_of(lattice, t, vocab_size, K_PAD: tl.constexpr):
    """Slot t's tokens int32 [1, K_PAD], head costs float64, which are listed, and how many tokens no model has.

    Candidates end at the first padding. A token outside the vocabulary is counted, not listed.
    """
    # [1, K_PAD] int32
    rank = tl.arange(0, K_PAD)[None, :]
    at = t * lattice.width + rank
    token = tl.load(lattice.ids + at, mask=rank < lattice.width, other=-1)
    # [1, K_PAD] bool
    inside = rank < tl.min(tl.where(token == -1, rank, K_PAD), axis=1)[:, None]
    listed = inside & (token >= 0) & (token < vocab_size)
    # [1, K_PAD] float32
    cost = tl.load(lattice.cost + at, mask=listed, other=0.0) * tl.load(lattice.head + t)
    return tl.where(listed, token, 0), cost.to(tl.float64), listed, tl.sum((inside & (listed == 0)).to(tl.int32))


@triton.jit
def length_of(lattice):
    """Number of slots before the first empty one."""
    t = 0
    while (t < lattice.slots) & (tl.load(lattice.ids + tl.minimum(t, lattice.slots - 1) * lattice.width) != -1):
        t += 1
    return t


@triton.jit
def keep_starts(models, lattice, chain, owed, stride, J: tl.constexpr, J_PAD: tl.constexpr, DEPTH: tl.constexpr):
    """Stores the states of the history in every model at 0; returns how many of its tokens no model has."""
    wrong = 0
    if J > 0:
        # [J_PAD, 1] int32
        model = tl.arange(0, J_PAD)[:, None]
        # [J_PAD, 1] int32; a scalar
        state, wrong = start(models, tl.minimum(model, J - 1), lattice.history, lattice.length, DEPTH)
        keep_chain(models, chain, owed, stride, model * DEPTH * stride, state, model < J, DEPTH)
    return wrong


class LiveStates(NamedTuple):
    """Pointers to the states of one lattice's live prefixes and of their children."""

    chain: Any  # int32 [J, DEPTH, N_PAD]
    owed: Any  # float32, as chain
    child: Any  # int32 [J, N_PAD, K_PAD]


@triton.jit
def weigh_children(
    models,
    lattice,
    pool,
    states,
    t,
    live,
    J: tl.constexpr,
    DEPTH: tl.constexpr,
    N_PAD: tl.constexpr,
    K_PAD: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Computes costs and states of the live prefixes' children; returns how many tokens of the slot no model has.

    Their states, int32 [J, N_PAD, K_PAD], are those after (prefix, rank).
    """
    # [1, K_PAD] int32, float64, bool; a scalar
    token, head, listed, wrong = slot_of(lattice, t, models.vocab_size, K_PAD)
    for first in range(0, live, ROWS):
        # [ROWS] int32
        at = first + tl.arange(0, ROWS)
        # [ROWS, 1] bool
        here = (at < live)[:, None]
        # [ROWS, K_PAD] int32
        edge = at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :]
        # [ROWS, K_PAD] float64
        cost = head + tl.zeros(edge.shape, tl.float64)
        for j in tl.static_range(J):
            kept = j * DEPTH * N_PAD
            alpha = tl.load(lattice.alpha + j * lattice.slots + t)
            # [ROWS, K_PAD] float64, int32
            own, state = match(
                models, j, alpha, states.chain + kept, states.owed + kept, N_PAD, at, here, token, listed, DEPTH
            )
            # [ROWS, K_PAD] float64
            cost += own
            tl.store(states.child + j * N_PAD * K_PAD + edge, state, mask=here)
        cost = tl.where(listed, round_nats(cost), float("inf"))
        # [ROWS, K_PAD] int64
        weight = tl.where(here, to_fixed(cost), IMPOSSIBLE)
        # [ROWS, K_PAD] bool
        possible = weight < IMPOSSIBLE
        # [ROWS, K_PAD] int64
        above = tl.where(possible, weight - tl.min(weight, axis=1)[:, None], 0)
        # [ROWS] float64
        total = tl.sum(tl.where(possible, tl.exp(-to_nats(above)), 0.0), axis=1)
        # [ROWS, K_PAD] int64
        step = above + to_fixed(round_nats(tl.log(tl.where(total > 0, total, 1.0))))[:, None]
        # [ROWS, 1] int64
        before = tl.load(pool.live_cost + at, mask=at < live, other=0)[:, None]
        tl.store(pool.child_cost + edge, tl.where(possible, before + step, IMPOSSIBLE))
    return wrong


@triton.jit
def grow_trees(
    models,
    lattices,
    pools,
    live_states,
    outs,
    n,
    J: tl.constexpr,
    J_PAD: tl.constexpr,
    DEPTH: tl.constexpr,
    N_PAD: tl.constexpr,
    K_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The tree of lattice b, by program b."""
    b = tl.program_id(0).to(tl.int64)
    lattice, pool = lattice_of(lattices, b), pool_of(pools, b, lattices.slots, N_PAD, K_PAD)
    kept: tl.constexpr = J * DEPTH * N_PAD
    states = LiveStates(
        live_states.chain + b * kept, live_states.owed + b * kept, live_states.child + b * J * N_PAD * K_PAD
    )
    wrong = keep_starts(models, lattice, states.chain, states.owed, N_PAD, J, J_PAD, DEPTH)
    tl.store(pool.live_cost, tl.zeros((), tl.int64))
    slots = length_of(lattice)
    tl.debug_barrier()
    size, live = 0, 1
    for t in range(slots):
        wrong += weigh_children(models, lattice, pool, states, t, live, J, DEPTH, N_PAD, K_PAD, ROWS)
        tl.debug_barrier()
        count = best_children(pool, size, live, n, K_PAD, ROWS, BLOCK)
        tl.debug_barrier()
        for first in range(0, count, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS] bool
            here = at < count
            # [ROWS] int32
            edge = add_children(lattice, pool, t, size, live, at, here, K_PAD)
            for j in tl.static_range(J):
                # [ROWS] int32
                state = tl.load(states.child + j * N_PAD * K_PAD + edge, mask=here, other=-1)
                own = j * DEPTH * N_PAD
                keep_chain(models, states.chain + own, states.owed + own, N_PAD, at, state, here, DEPTH)
        tl.debug_barrier()
        size += count
        live = count
    out = out_of(outs, b, n)
    write_tree(pool, out, size, n, N_PAD, ROWS, BLOCK)
    tl.store(out.invalid, wrong > 0)


def grow(models: ResidentModels, lattices: DeviceLattices, n: int) -> TensorTrees:
    """Returns the trees of n nodes of a batch, in one launch."""
    batch, slots, width = lattices.ids.shape
    j, depth = models.size, models.depth
    n_pad, k_pad = max(16, power_of_two(n)), max(2, power_of_two(width))
    rows = min(n_pad, max(1, MOST_LANES // k_pad))
    room = partial(torch.empty, batch, dtype=torch.int32, device=models.device)
    states = LiveStates(
        chain=room(j, depth, n_pad), owed=room(j, depth, n_pad, dtype=torch.float32), child=room(j, n_pad, k_pad)
    )
    out = tree_out(room, n)
    grow_trees[(batch,)](
        models.pointers,
        lattices,
        pool_room(room, slots, n_pad, k_pad),
        states,
        out,
        n,
        J=j,
        J_PAD=power_of_two(j),
        DEPTH=depth,
        N_PAD=n_pad,
        K_PAD=k_pad,
        ROWS=rows,
        BLOCK=rows * k_pad,
        num_warps=warps(rows * k_pad),
        **EXACT,
    )
    return TensorTrees(**out._asdict())
