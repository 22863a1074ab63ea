"""The p best paths of composed lattices.

A backward pass computes the cost of every node's best completion. A forward pass then keeps, slot by slot, the p
prefixes that are least with this completion. No other prefix of t tokens can belong to the p best paths, since each of
the p has a completion that comes first. The order of ties is therefore that of paths, by ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from rescore.decode.device.compose import Composition
from rescore.decode.device.fixed import IMPOSSIBLE, to_fixed, to_nats
from rescore.decode.device.launch import EXACT, MOST_LANES, Room, power_of_two, warps
from rescore.decode.device.selection import choose, count_upto, threshold
from rescore.decode.device.slots import DeviceLattices, precedes
from rescore.lattice.tensors import TensorDrafts


class Prefixes(NamedTuple):
    """Workspace of one lattice's program."""

    completion: Any  # int64 [T + 1, C], the least cost from each node to the end
    total: Any  # int64 [P_PAD, K_PAD], of the children of a slot's prefixes, completed
    chosen: Any  # int32 [P_PAD]
    cost: Any  # int64 [2, P_PAD], of this slot's prefixes and the next slot's, without completion
    node: Any  # int32 [2, P_PAD]
    parent: Any  # int32 [T, P_PAD], prefix of the previous slot
    rank: Any  # int32 [T, P_PAD]


@triton.jit
def edge_costs(cost, target, completion, at, here, inner, K_PAD: tl.constexpr):
    """Costs of the edges of nodes `at` [R], alone and with the completions of their targets, int64 [R, K_PAD]. inner:
    not in the last slot.
    """
    # [R, K_PAD] int32
    edge = at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :]
    # [R, K_PAD] int64
    weight = to_fixed(tl.load(cost + edge, mask=here[:, None], other=float("inf")))
    # [R, K_PAD] int32
    to = tl.load(target + edge, mask=here[:, None] & inner, other=-1)
    # [R, K_PAD] int64
    rest = tl.load(completion + to, mask=to >= 0, other=IMPOSSIBLE)
    rest = tl.where(inner, rest, 0)
    # [R, K_PAD] bool
    possible = (weight < IMPOSSIBLE) & (rest < IMPOSSIBLE)
    return weight, tl.where(possible, weight + rest, IMPOSSIBLE)


@triton.jit
def complete(composed, completion, row, slots, C: tl.constexpr, K_PAD: tl.constexpr, ROWS: tl.constexpr):
    """Computes the completions of all nodes, backward from the last slot."""
    for back in range(0, slots):
        t = slots - 1 - back
        nodes = tl.load(composed.nodes + row + t)
        edges = (row + t) * C * K_PAD
        for first in range(0, nodes, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS, K_PAD] int64
            _, total = edge_costs(
                composed.cost + edges,
                composed.target + edges,
                completion + (t + 1) * C,
                at,
                at < nodes,
                precedes(t + 1, slots),
                K_PAD,
            )
            tl.store(completion + t * C + at, tl.min(total, axis=1), mask=at < nodes)
        tl.debug_barrier()


@triton.jit
def spell(
    lattice_ids, room, out_tokens, out_cost, slots, all_slots, width, count, p, P_PAD: tl.constexpr, ROWS: tl.constexpr
):
    """Writes the prefixes of the last slot, stored in the order of ranks, in order of (cost, ranks)."""
    final = room.cost + (slots % 2) * P_PAD
    for first in range(0, p, ROWS):
        # [ROWS] int32
        at = first + tl.arange(0, ROWS)
        # [ROWS] bool
        here = at < count
        # [ROWS] int64
        cost = tl.load(final + at, mask=here, other=IMPOSSIBLE)
        # [ROWS] int32
        place = tl.zeros((ROWS,), tl.int32)
        for other in range(0, count, ROWS):
            # [ROWS] int32
            rival = other + tl.arange(0, ROWS)
            # [ROWS] int64
            theirs = tl.load(final + rival, mask=rival < count, other=IMPOSSIBLE)
            # [ROWS, ROWS] bool
            before = (theirs[None, :] < cost[:, None]) | (
                (theirs[None, :] == cost[:, None]) & (rival[None, :] < at[:, None])
            )
            # [ROWS] int32
            place += tl.sum(before.to(tl.int32), axis=1)
        # [ROWS] int32
        place = tl.where(here, place, at)
        tl.store(out_cost + place, tl.where(here, to_nats(cost).to(tl.float32), float("inf")), mask=at < p)
        for t in range(0, all_slots):
            tl.store(out_tokens + place * all_slots + t, -1, mask=(at < p) & ((here & precedes(t, slots)) == 0))
        # [ROWS] int32
        prefix = at
        for back in range(0, slots):
            t = slots - 1 - back
            # [ROWS] int32
            rank = tl.load(room.rank + t * P_PAD + prefix, mask=here, other=0)
            tl.store(
                out_tokens + place * all_slots + t,
                tl.load(lattice_ids + t * width + rank, mask=here, other=-1),
                mask=here,
            )
            prefix = tl.load(room.parent + t * P_PAD + prefix, mask=here, other=0)


@triton.jit
def best_strings(
    lattices,
    composed,
    rooms,
    tokens,
    costs,
    counts,
    p,
    C: tl.constexpr,
    K_PAD: tl.constexpr,
    P_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The p best paths of lattice b, by program b."""
    b = tl.program_id(0).to(tl.int64)
    row = b * lattices.slots
    room = Prefixes(
        rooms.completion + (row + b) * C,
        rooms.total + b * P_PAD * K_PAD,
        rooms.chosen + b * P_PAD,
        rooms.cost + b * 2 * P_PAD,
        rooms.node + b * 2 * P_PAD,
        rooms.parent + row * P_PAD,
        rooms.rank + row * P_PAD,
    )
    slots = tl.load(composed.length + b)
    complete(composed, room.completion, row, slots, C, K_PAD, ROWS)
    tl.store(room.cost, tl.zeros((), tl.int64))
    tl.store(room.node, 0)
    tl.debug_barrier()
    count = (slots > 0).to(tl.int32)
    for t in range(0, slots):
        own, other = (t % 2) * P_PAD, ((t + 1) % 2) * P_PAD
        edges = (row + t) * C * K_PAD
        for first in range(0, count, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS] bool
            here = at < count
            # [ROWS] int32
            node = tl.load(room.node + own + at, mask=here, other=0)
            # [ROWS, K_PAD] int64
            _, total = edge_costs(
                composed.cost + edges,
                composed.target + edges,
                room.completion + (t + 1) * C,
                node,
                here,
                precedes(t + 1, slots),
                K_PAD,
            )
            # [ROWS, 1] int64
            before = tl.load(room.cost + own + at, mask=here, other=0)[:, None]
            # [ROWS, K_PAD] int64
            total = tl.where(total < IMPOSSIBLE, before + total, IMPOSSIBLE)
            tl.store(room.total + at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :], total)
        children = tl.cdiv(count, ROWS) * ROWS * K_PAD
        tl.debug_barrier()
        most = threshold(room.total, children, room.total, 0, p, BLOCK)
        count = choose(
            room.total,
            children,
            most,
            p - count_upto(room.total, children, room.total, 0, most - 1, BLOCK),
            room.chosen,
            BLOCK,
        )
        tl.debug_barrier()
        for first in range(0, count, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS] bool
            here = at < count
            # [ROWS] int32
            child = tl.load(room.chosen + at, mask=here, other=0)
            parent, rank = child // K_PAD, child % K_PAD
            # [ROWS] int64
            edge = edges + tl.load(room.node + own + parent, mask=here, other=0) * K_PAD + rank
            weight = to_fixed(tl.load(composed.cost + edge, mask=here, other=0.0))
            tl.store(room.cost + other + at, tl.load(room.cost + own + parent, mask=here, other=0) + weight, mask=here)
            tl.store(
                room.node + other + at,
                tl.load(composed.target + edge, mask=here & precedes(t + 1, slots), other=0),
                mask=here,
            )
            tl.store(room.parent + t * P_PAD + at, parent, mask=here)
            tl.store(room.rank + t * P_PAD + at, rank, mask=here)
        tl.debug_barrier()
    spell(
        lattices.ids + row * lattices.width,
        room,
        tokens + b * p * lattices.slots,
        costs + b * p,
        slots,
        lattices.slots,
        lattices.width,
        count,
        p,
        P_PAD,
        ROWS,
    )
    tl.store(counts + b, count)


def best(lattices: DeviceLattices, composed: Composition, p: int) -> TensorDrafts:
    """Returns the p best paths of a batch, in one launch."""
    batch, slots, c, k_pad = composed.cost.shape
    p_pad = max(16, power_of_two(p))
    rows = min(max(p_pad, c), max(1, MOST_LANES // k_pad))
    p_pad = max(p_pad, rows)
    room = Room(batch, composed.cost.device)
    rooms = Prefixes(
        completion=room(slots + 1, c, dtype=torch.int64),
        total=room(p_pad, k_pad, dtype=torch.int64),
        chosen=room(p_pad),
        cost=room(2, p_pad, dtype=torch.int64),
        node=room(2, p_pad),
        parent=room(slots, p_pad),
        rank=room(slots, p_pad),
    )
    tokens, cost, count = room(p, slots), room(p, dtype=torch.float32), room()
    best_strings[(batch,)](
        lattices,
        composed,
        rooms,
        tokens,
        cost,
        count,
        p,
        C=c,
        K_PAD=k_pad,
        P_PAD=p_pad,
        ROWS=rows,
        BLOCK=rows * k_pad,
        num_warps=warps(rows * k_pad),
        **EXACT,
    )
    return TensorDrafts(tokens=tokens, cost=cost, count=count, exact=~composed.dropped, invalid=composed.invalid)
