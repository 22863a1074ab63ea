"""Trees of the n most probable prefixes under q(w | prefix) = softmax over the slot's candidates of -(cost + alpha LM).

One program grows a lattice's tree, slot by slot. A pool holds the prefixes found so far in order of (depth, ranks); `live` ones
are those of the last slot. The children of all live prefixes are weighed, and of pool and children together the n least costly
go on, ties to those that come first. That is exact: a prefix never costs less than its parent, so what n others precede
neither belongs to the tree nor has descendants that do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from rescore.decode.device.edges import expand
from rescore.decode.device.fixed import IMPOSSIBLE, to_fixed, to_nats
from rescore.decode.device.launch import EXACT, MOST_LANES, Room, power_of_two, warps
from rescore.decode.device.look_up import keep_chain
from rescore.decode.device.resident import ResidentModels
from rescore.decode.device.selection import choose, count_upto, threshold
from rescore.decode.device.slots import Lattices, keep_starts, lattice_of, length_of, slot_of
from rescore.decode.tensors import TensorTrees


class TreeRoom(NamedTuple):
    """Pointers to the room that one lattice's program works in. N_PAD: n or more, a power of two; K_PAD likewise."""

    child_cost: Any  # int64 [N_PAD, K_PAD]
    child_state: Any  # int32 [J, N_PAD, K_PAD]
    live_cost: Any  # int64 [N_PAD]
    chain: Any  # int32 [J, DEPTH, N_PAD], of the live prefixes
    owed: Any  # float32, as chain
    chosen: Any  # int32 [N_PAD]
    cost: Any  # int64 [T * N_PAD], of the pool; so are the next four
    parent: Any  # int32
    token: Any  # int32
    depth: Any  # int32
    place: Any  # int32, in the tree


class TreeOut(NamedTuple):
    """Pointers to one lattice's tree."""

    tokens: Any  # int32 [n], padding -1
    parents: Any  # int32 [n], padding -1
    depths: Any  # int32 [n], padding 0
    logq: Any  # float32 [n], padding -inf
    count: Any  # int32 []
    invalid: Any  # bool []


@triton.jit
def room_of(rooms, b, slots, J: tl.constexpr, DEPTH: tl.constexpr, N_PAD: tl.constexpr, K_PAD: tl.constexpr):
    kept, pool = b * J * DEPTH * N_PAD, b * slots * N_PAD
    return TreeRoom(
        rooms.child_cost + b * N_PAD * K_PAD, rooms.child_state + b * J * N_PAD * K_PAD, rooms.live_cost + b * N_PAD,
        rooms.chain + kept, rooms.owed + kept, rooms.chosen + b * N_PAD,
        rooms.cost + pool, rooms.parent + pool, rooms.token + pool, rooms.depth + pool, rooms.place + pool,
    )  # fmt: skip


@triton.jit
def out_of(outs, b, n):
    return TreeOut(outs.tokens + b * n, outs.parents + b * n, outs.depths + b * n, outs.logq + b * n, outs.count + b, outs.invalid + b)


@triton.jit
def weigh(models, lattice, room, t, live, J: tl.constexpr, DEPTH: tl.constexpr, N_PAD: tl.constexpr, K_PAD: tl.constexpr, ROWS: tl.constexpr):
    """Costs and next states of the live prefixes' children, by prefix and rank; how many tokens of the slot no model has."""
    token, head, listed, wrong = slot_of(lattice, t, models.vocab_size, K_PAD)
    for first in range(0, live, ROWS):
        at = first + tl.arange(0, ROWS)
        here = (at < live)[:, None]
        cost = expand(
            models, lattice, t, token, head, listed, at, here, room.chain, room.owed, N_PAD, room.child_state, N_PAD * K_PAD, J, DEPTH, K_PAD
        )  # fmt: skip
        weight = tl.where(listed & here, to_fixed(cost / tl.load(lattice.temperature)), IMPOSSIBLE)
        possible = weight < IMPOSSIBLE
        above = tl.where(possible, weight - tl.min(weight, axis=1)[:, None], 0)
        total = tl.sum(tl.where(possible, tl.exp(-to_nats(above)), 0.0), axis=1)
        step = above + to_fixed(tl.log(tl.where(total > 0, total, 1.0)))[:, None]
        before = tl.load(room.live_cost + at, mask=at < live, other=0)[:, None]
        child = at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :]
        tl.store(room.child_cost + child, tl.where(possible, before + step, IMPOSSIBLE))
    return wrong


@triton.jit
def go_on(models, lattice, room, t, pool, live, count, J: tl.constexpr, DEPTH: tl.constexpr, N_PAD: tl.constexpr, K_PAD: tl.constexpr, ROWS: tl.constexpr):
    """Puts the `count` chosen children behind the pool's last, which were the `live` prefixes, and lets them live."""
    for first in range(0, count, ROWS):
        at = first + tl.arange(0, ROWS)
        here = at < count
        child = tl.load(room.chosen + at, mask=here, other=0)
        cost = tl.load(room.child_cost + child, mask=here, other=0)
        tl.store(room.live_cost + at, cost, mask=here)
        tl.store(room.cost + pool + at, cost, mask=here)
        tl.store(room.parent + pool + at, tl.where(t > 0, pool - live + child // K_PAD, -1), mask=here)
        tl.store(room.token + pool + at, tl.load(lattice.ids + t * lattice.width + child % K_PAD, mask=here, other=0), mask=here)
        tl.store(room.depth + pool + at, t + 1, mask=here)
        for j in tl.static_range(J):
            state = tl.load(room.child_state + j * N_PAD * K_PAD + child, mask=here, other=-1)
            keep_chain(models, room.chain + j * DEPTH * N_PAD, room.owed + j * DEPTH * N_PAD, N_PAD, at, state, here, DEPTH)


@triton.jit
def write_tree(room, out, pool, n, N_PAD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """The n least costly of the pool, in order of (cost, depth, ranks)."""
    most = threshold(room.cost, pool, room.cost, 0, n, BLOCK)
    ties = n - count_upto(room.cost, pool, most - 1, BLOCK)
    count = choose(room.cost, pool, most, ties, room.chosen, BLOCK)
    tl.debug_barrier()
    for first in range(0, n, ROWS):
        at = first + tl.arange(0, ROWS)
        here = at < count
        node = tl.load(room.chosen + at, mask=here, other=0)
        cost = tl.load(room.cost + node, mask=here, other=IMPOSSIBLE)
        place = tl.zeros((ROWS,), tl.int32)
        for other in range(0, count, ROWS):
            rival = other + tl.arange(0, ROWS)
            theirs = tl.load(room.cost + tl.load(room.chosen + rival, mask=rival < count, other=0), mask=rival < count, other=IMPOSSIBLE)
            before = (theirs[None, :] < cost[:, None]) | ((theirs[None, :] == cost[:, None]) & (rival[None, :] < at[:, None]))
            place += tl.sum(before.to(tl.int32), axis=1)
        tl.store(room.place + node, place, mask=here)
        tl.store(out.tokens + place, tl.load(room.token + node, mask=here, other=-1), mask=here)
        tl.store(out.depths + place, tl.load(room.depth + node, mask=here, other=0), mask=here)
        tl.store(out.logq + place, -to_nats(cost).to(tl.float32), mask=here)
        tl.store(out.tokens + at, -1, mask=(at >= count) & (at < n))
        tl.store(out.parents + at, -1, mask=(at >= count) & (at < n))
        tl.store(out.depths + at, 0, mask=(at >= count) & (at < n))
        tl.store(out.logq + at, -float("inf"), mask=(at >= count) & (at < n))
    tl.debug_barrier()
    for first in range(0, count, ROWS):
        at = first + tl.arange(0, ROWS)
        here = at < count
        node = tl.load(room.chosen + at, mask=here, other=0)
        above = tl.load(room.parent + node, mask=here, other=-1)
        tl.store(out.parents + tl.load(room.place + node, mask=here, other=0), tl.load(room.place + above, mask=here & (above >= 0), other=-1), mask=here)
    tl.store(out.count, count)


@triton.jit
def grow_trees(
    models, lattices, rooms, outs, n,
    J: tl.constexpr, J_PAD: tl.constexpr, DEPTH: tl.constexpr, N_PAD: tl.constexpr, K_PAD: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The tree of lattice b, by program b."""
    b = tl.program_id(0).to(tl.int64)
    lattice, room, out = lattice_of(lattices, b), room_of(rooms, b, lattices.slots, J, DEPTH, N_PAD, K_PAD), out_of(outs, b, n)
    wrong = keep_starts(models, lattice, room.chain, room.owed, N_PAD, J, J_PAD, DEPTH)
    tl.store(room.live_cost, tl.zeros((), tl.int64))
    slots = length_of(lattice)
    tl.debug_barrier()
    pool, live = 0, 1
    for t in range(slots):
        wrong += weigh(models, lattice, room, t, live, J, DEPTH, N_PAD, K_PAD, ROWS)
        children = tl.cdiv(live, ROWS) * ROWS * K_PAD
        tl.debug_barrier()
        most = threshold(room.cost, pool, room.child_cost, children, n, BLOCK)
        ties = n - count_upto(room.cost, pool, most, BLOCK) - count_upto(room.child_cost, children, most - 1, BLOCK)
        count = choose(room.child_cost, children, most, ties, room.chosen, BLOCK)
        tl.debug_barrier()
        go_on(models, lattice, room, t, pool, live, count, J, DEPTH, N_PAD, K_PAD, ROWS)
        tl.debug_barrier()
        pool += count
        live = count
    write_tree(room, out, pool, n, N_PAD, ROWS, BLOCK)
    tl.store(out.invalid, wrong > 0)


def grow(models: ResidentModels, lattices: Lattices, n: int) -> TensorTrees:
    """The trees of n nodes of a batch: one launch."""
    batch, slots, width = lattices.ids.shape
    j, depth = models.size, models.depth
    n_pad, k_pad = max(16, power_of_two(n)), max(2, power_of_two(width))
    rows = min(n_pad, max(1, MOST_LANES // k_pad))
    room = Room(batch, models.device)
    rooms = TreeRoom(
        child_cost=room(n_pad, k_pad, dtype=torch.int64), child_state=room(j, n_pad, k_pad), live_cost=room(n_pad, dtype=torch.int64),
        chain=room(j, depth, n_pad), owed=room(j, depth, n_pad, dtype=torch.float32), chosen=room(n_pad),
        cost=room(slots, n_pad, dtype=torch.int64), parent=room(slots, n_pad), token=room(slots, n_pad), depth=room(slots, n_pad), place=room(slots, n_pad),
    )  # fmt: skip
    outs = TreeOut(tokens=room(n), parents=room(n), depths=room(n), logq=room(n, dtype=torch.float32), count=room(), invalid=room(dtype=torch.bool))
    grow_trees[(batch,)](
        models.pointers, lattices, rooms, outs, n,
        J=j, J_PAD=power_of_two(j), DEPTH=depth, N_PAD=n_pad, K_PAD=k_pad, ROWS=rows, BLOCK=rows * k_pad, num_warps=warps(rows * k_pad), **EXACT,
    )  # fmt: skip
    return TensorTrees(**outs._asdict())
