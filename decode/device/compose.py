"""Composition of lattice and models: every (slot, states of the models) that some prefix reaches, once, with its edges.

Nodes are made slot by slot, at most CAPACITY in each. All edges of a slot are weighed, and their targets deduplicated
in a hash table that the edges fill concurrently. Nodes are numbered in the order of the first edge that leads to them.
If a slot would have more, those with the cheapest best prefix are kept and `dropped` is set: the search is then a beam.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from rescore.decode.device.edges import expand
from rescore.decode.device.fixed import IMPOSSIBLE, to_fixed
from rescore.decode.device.launch import EXACT, MOST_LANES, Room, power_of_two, warps
from rescore.decode.device.look_up import keep_chain
from rescore.decode.device.resident import ResidentModels
from rescore.decode.device.selection import choose, count_upto, threshold
from rescore.decode.device.slots import DeviceLattices, keep_starts, lattice_of, length_of, slot_of

FREE = tl.constexpr(-1)  # a free place in the hash table
NO_PLACE = tl.constexpr(-2)  # past the end of the table; never free
LATER = tl.constexpr(2**31 - 1)  # greater than any edge


class Composition(NamedTuple):
    """Nodes and edges of each lattice of a batch.

    Row t of an array is slot t's. An edge (node, rank) has a cost and a node of the next slot, -1 if it is impossible
    or was dropped. Nodes beyond `nodes`, and the last slot's targets, are not written.
    """

    cost: Any  # float64 [B, T, C, K_PAD], nats; +inf if impossible
    target: Any  # int32 [B, T, C, K_PAD]
    nodes: Any  # int32 [B, T]; 0 from the lattice's end on
    length: Any  # int32 [B]
    dropped: Any  # bool [B]
    invalid: Any  # bool [B]


class Workplace(NamedTuple):
    """Workspace of one lattice's program. E is C * K_PAD, a slot's edges; H, a power of two, the size of the table."""

    state: Any  # int32 [J, E], after each edge
    chain: Any  # int32 [J, DEPTH, C], of the slot's nodes
    owed: Any  # float32, as chain
    reached: Any  # int64 [C], the cost of each node's best prefix
    place: Any  # int32 [E], of each edge's target in the table
    first: Any  # int32 [E], the first edge of each target
    best: Any  # int64 [E], the cost of each target's best prefix
    chosen: Any  # int32 [C], the targets that are kept
    claim: Any  # int32 [H + 1]: the table; the edge that took the place first in time
    early: Any  # int32 [H]: the first edge of the place's target, by number
    least: Any  # int64 [H]: the least cost of the target
    number: Any  # int32 [H]: the target's number, or -1


@triton.jit
def workplace_of(rooms, b, J: tl.constexpr, DEPTH: tl.constexpr, C: tl.constexpr, E: tl.constexpr, H: tl.constexpr):
    kept = b * J * DEPTH * C
    return Workplace(
        rooms.state + b * J * E,
        rooms.chain + kept,
        rooms.owed + kept,
        rooms.reached + b * C,
        rooms.place + b * E,
        rooms.first + b * E,
        rooms.best + b * E,
        rooms.chosen + b * C,
        rooms.claim + b * (H + 1),
        rooms.early + b * H,
        rooms.least + b * H,
        rooms.number + b * H,
    )


@triton.jit
def weigh_edges(
    models,
    lattice,
    work,
    t,
    live,
    cost_out,
    J: tl.constexpr,
    DEPTH: tl.constexpr,
    C: tl.constexpr,
    K_PAD: tl.constexpr,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Computes costs and states of slot t's edges; returns how many of its tokens no model has."""
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
            work.chain,
            work.owed,
            C,
            work.state,
            C * K_PAD,
            J,
            DEPTH,
            K_PAD,
            PARTS,
        )
        tl.store(cost_out + at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :], cost, mask=here)
    return wrong


@triton.jit
def clear_table(work, size, H: tl.constexpr, BLOCK: tl.constexpr):
    for first in range(0, size, BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        tl.store(work.claim + i, FREE, mask=i < size)
        tl.store(work.early + i, LATER, mask=i < size)
        tl.store(work.least + i, IMPOSSIBLE, mask=i < size)
        tl.store(work.number + i, -1, mask=i < size)
    tl.store(work.claim + H, NO_PLACE)


@triton.jit
def meet(
    work, cost, edges, size, J: tl.constexpr, E: tl.constexpr, H: tl.constexpr, K_PAD: tl.constexpr, BLOCK: tl.constexpr
):
    """Finds the place of every edge's target: the first edge in time claims it, others compare their states with that
    edge's.
    """
    for first in range(0, edges, BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        # [BLOCK] float64
        weight = tl.load(cost + i, mask=i < edges, other=float("inf"))
        # [BLOCK] bool
        possible = weight < float("inf")
        # [BLOCK] int64
        key = tl.zeros((BLOCK,), tl.int64)
        for j in tl.static_range(J):
            # [BLOCK] int64
            key = (key ^ tl.load(work.state + j * E + i, mask=possible, other=0)) * -7046029254386353131
        # [BLOCK] int32
        place = ((key >> 32) & (size - 1)).to(tl.int32)
        # [BLOCK] bool
        left = possible
        while tl.max(left.to(tl.int32)) > 0:
            # [BLOCK] int32
            held = tl.atomic_cas(
                work.claim + tl.where(left, place, H), tl.full((BLOCK,), FREE, tl.int32), i, sem="relaxed"
            )
            owner = tl.where(left & (held >= 0), held, i)
            # [BLOCK] bool
            same = left
            for j in tl.static_range(J):
                # [BLOCK] int32
                theirs = tl.load(work.state + j * E + owner, mask=left, other=0)
                # [BLOCK] bool
                same = same & (theirs == tl.load(work.state + j * E + i, mask=left, other=0))
            # [BLOCK] bool
            left = left & (same == 0)
            # [BLOCK] int32
            place = tl.where(left, (place + 1) & (size - 1), place)
        # [BLOCK] int64
        before = tl.load(work.reached + i // K_PAD, mask=possible, other=0)
        tl.atomic_min(work.early + place, i, mask=possible, sem="relaxed")
        tl.atomic_min(
            work.least + place, tl.where(possible, before + to_fixed(weight), IMPOSSIBLE), mask=possible, sem="relaxed"
        )
        tl.store(work.place + i, tl.where(possible, place, -1), mask=i < edges)


@triton.jit
def list_targets(work, edges, BLOCK: tl.constexpr):
    """Lists every target by its first edge; returns their number."""
    found = 0
    for first in range(0, edges, BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        place = tl.load(work.place + i, mask=i < edges, other=-1)
        # [BLOCK] bool
        is_first = (place >= 0) & (tl.load(work.early + place, mask=place >= 0, other=-1) == i)
        # [BLOCK] int32
        at = found + tl.cumsum(is_first.to(tl.int32), 0) - 1
        tl.store(work.first + at, i, mask=is_first)
        tl.store(work.best + at, tl.load(work.least + place, mask=is_first, other=0), mask=is_first)
        found += tl.sum(is_first.to(tl.int32))
    return found


@triton.jit
def number_nodes(
    models, work, count, J: tl.constexpr, DEPTH: tl.constexpr, C: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr
):
    """Makes the chosen targets the nodes of the next slot."""
    for first in range(0, count, ROWS):
        # [ROWS] int32
        at = first + tl.arange(0, ROWS)
        # [ROWS] bool
        here = at < count
        # [ROWS] int32
        target = tl.load(work.chosen + at, mask=here, other=0)
        edge = tl.load(work.first + target, mask=here, other=0)
        tl.store(work.number + tl.load(work.place + edge, mask=here, other=0), at, mask=here)
        tl.store(work.reached + at, tl.load(work.best + target, mask=here, other=0), mask=here)
        for j in tl.static_range(J):
            kept = j * DEPTH * C
            keep_chain(
                models,
                work.chain + kept,
                work.owed + kept,
                C,
                at,
                tl.load(work.state + j * E + edge, mask=here, other=-1),
                here,
                DEPTH,
            )


@triton.jit
def link(work, target_out, edges, BLOCK: tl.constexpr):
    for first in range(0, edges, BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        place = tl.load(work.place + i, mask=i < edges, other=-1)
        tl.store(target_out + i, tl.load(work.number + place, mask=place >= 0, other=-1), mask=i < edges)


@triton.jit
def compose_lattices(
    models,
    lattices,
    rooms,
    out,
    capacity,
    J: tl.constexpr,
    J_PAD: tl.constexpr,
    DEPTH: tl.constexpr,
    C: tl.constexpr,
    K_PAD: tl.constexpr,
    PARTS: tl.constexpr,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The composition of lattice b, by program b. C is `capacity`, padded."""
    b = tl.program_id(0).to(tl.int64)
    E: tl.constexpr = C * K_PAD
    lattice, work = lattice_of(lattices, b), workplace_of(rooms, b, J, DEPTH, C, E, H)
    wrong = keep_starts(models, lattice, work.chain, work.owed, C, J, J_PAD, DEPTH)
    tl.store(work.reached, tl.zeros((), tl.int64))
    slots = length_of(lattice)
    live = 1
    dropped = 0
    for t in range(slots):
        cost, target = out.cost + (b * lattice.slots + t) * E, out.target + (b * lattice.slots + t) * E
        tl.store(out.nodes + b * lattice.slots + t, live)
        edges = live * K_PAD
        tl.debug_barrier()
        wrong += weigh_edges(models, lattice, work, t, live, cost, J, DEPTH, C, K_PAD, PARTS, ROWS)
        if t + 1 < slots:
            size = BLOCK
            while size < 2 * edges:
                size *= 2
            clear_table(work, size, H, BLOCK)
            tl.debug_barrier()
            meet(work, cost, edges, size, J, E, H, K_PAD, BLOCK)
            tl.debug_barrier()
            found = list_targets(work, edges, BLOCK)
            tl.debug_barrier()
            most = threshold(work.best, found, work.best, 0, capacity, BLOCK)
            live = choose(
                work.best,
                found,
                most,
                capacity - count_upto(work.best, found, work.best, 0, most - 1, BLOCK),
                work.chosen,
                BLOCK,
            )
            dropped += found - live
            tl.debug_barrier()
            number_nodes(models, work, live, J, DEPTH, C, E, ROWS)
            tl.debug_barrier()
            link(work, target, edges, BLOCK)
    for t in range(slots, lattice.slots):
        tl.store(out.nodes + b * lattice.slots + t, 0)
    tl.store(out.length + b, slots)
    tl.store(out.dropped + b, dropped > 0)
    tl.store(out.invalid + b, wrong > 0)


def compose(models: ResidentModels, lattices: DeviceLattices, capacity: int, *, parts: bool) -> Composition:
    """Returns the composition of a batch, in one launch. parts: round an edge's weight part by part, as a path's."""
    batch, slots, width = lattices.ids.shape
    j, depth = models.size, models.depth
    c, k_pad = power_of_two(capacity), max(2, power_of_two(width))
    rows = min(c, max(1, MOST_LANES // k_pad))
    block = rows * k_pad
    h = max(block, 2 * c * k_pad)
    room = Room(batch, models.device)
    rooms = Workplace(
        state=room(j, c * k_pad),
        chain=room(j, depth, c),
        owed=room(j, depth, c, dtype=torch.float32),
        reached=room(c, dtype=torch.int64),
        place=room(c * k_pad),
        first=room(c * k_pad),
        best=room(c * k_pad, dtype=torch.int64),
        chosen=room(c),
        claim=room(h + 1),
        early=room(h),
        least=room(h, dtype=torch.int64),
        number=room(h),
    )
    out = Composition(
        cost=room(slots, c, k_pad, dtype=torch.float64),
        target=room(slots, c, k_pad),
        nodes=room(slots),
        length=room(),
        dropped=room(dtype=torch.bool),
        invalid=room(dtype=torch.bool),
    )
    compose_lattices[(batch,)](
        models.pointers,
        lattices,
        rooms,
        out,
        capacity,
        J=j,
        J_PAD=power_of_two(j),
        DEPTH=depth,
        C=c,
        K_PAD=k_pad,
        PARTS=parts,
        H=h,
        ROWS=rows,
        BLOCK=block,
        num_warps=warps(block),
        **EXACT,
    )
    return out
