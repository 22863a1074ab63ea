"""Trees of the n most probable prefixes under q(w | prefix) = softmax over the slot's candidates of -(cost + alpha LM).

One program grows a lattice's tree, slot by slot (pool.py), and computes only the children of live prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from rescore.decode.device.launch import (
    EXACT,
    IMPOSSIBLE,
    MOST_LANES,
    Room,
    power_of_two,
    rounded,
    to_fixed,
    to_nats,
    warps,
)
from rescore.decode.device.look_up import keep_chain, match
from rescore.decode.device.pool import add_children, best_children, out_of, pool_of, pool_room, tree_out, write_tree
from rescore.decode.device.resident import ResidentModels
from rescore.decode.device.slots import DeviceLattices, keep_starts, lattice_of, length_of, slot_of
from rescore.lattice.tensors import TensorTrees


@triton.jit
def expand(
    models,
    lattice,
    t,
    token,
    head,
    listed,
    at,
    here,
    chain,
    owed,
    stride,
    state_out,
    state_stride,
    J: tl.constexpr,
    DEPTH: tl.constexpr,
    K_PAD: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Costs of slot t's candidates after the states stored at `at` [R]: float64 [R, K_PAD], nats, rounded; +inf if
    impossible.

    PARTS: round part by part (`match`), not the sum. Stores the states after them, int32 [J, state_stride], at the
    place of (state, rank).
    """
    # [R, K_PAD] int32
    edge = at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :]
    # [R, K_PAD] float64
    cost = (rounded(head) if PARTS else head) + tl.zeros(edge.shape, tl.float64)
    for j in tl.static_range(J):
        kept = j * DEPTH * stride
        alpha = tl.load(lattice.alpha + j * lattice.slots + t)
        # [R, K_PAD] float64, int32
        own, state = match(models, j, alpha, chain + kept, owed + kept, stride, at, here, token, listed, DEPTH, PARTS)
        # [R, K_PAD] float64
        cost += own
        tl.store(state_out + j * state_stride + edge, state, mask=here)
    return tl.where(listed, cost if PARTS else rounded(cost), float("inf"))


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
    """Computes costs and states of the live prefixes' children; returns how many tokens of the slot no model has."""
    # [1, K_PAD] int32, float64, bool; a scalar
    token, head, listed, wrong = slot_of(lattice, t, models.vocab_size, K_PAD)
    for first in range(0, live, ROWS):
        # [ROWS] int32
        at = first + tl.arange(0, ROWS)
        # [ROWS, 1] bool
        here = (at < live)[:, None]
        # [ROWS, K_PAD] float64
        cost = expand(
            models,
            lattice,
            t,
            token,
            head,
            listed,
            at,
            here,
            states.chain,
            states.owed,
            N_PAD,
            states.child,
            N_PAD * K_PAD,
            J,
            DEPTH,
            K_PAD,
            False,
        )
        # [ROWS, K_PAD] int64
        weight = tl.where(here, to_fixed(cost), IMPOSSIBLE)
        # [ROWS, K_PAD] bool
        possible = weight < IMPOSSIBLE
        # [ROWS, K_PAD] int64
        above = tl.where(possible, weight - tl.min(weight, axis=1)[:, None], 0)
        # [ROWS] float64
        total = tl.sum(tl.where(possible, tl.exp(-to_nats(above)), 0.0), axis=1)
        # [ROWS, K_PAD] int64
        step = above + to_fixed(rounded(tl.log(tl.where(total > 0, total, 1.0))))[:, None]
        # [ROWS, 1] int64
        before = tl.load(pool.live_cost + at, mask=at < live, other=0)[:, None]
        tl.store(
            pool.child_cost + at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :],
            tl.where(possible, before + step, IMPOSSIBLE),
        )
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
                keep_chain(
                    models,
                    states.chain + j * DEPTH * N_PAD,
                    states.owed + j * DEPTH * N_PAD,
                    N_PAD,
                    at,
                    state,
                    here,
                    DEPTH,
                )
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
    room = Room(batch, models.device)
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
