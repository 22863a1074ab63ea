"""Trees of the n most probable prefixes of composed lattices with ln q on their edges."""

from __future__ import annotations

import triton
import triton.language as tl

from rescore.decode.device.compose import Composition
from rescore.decode.device.fixed import IMPOSSIBLE, rounded, to_fixed
from rescore.decode.device.launch import EXACT, MOST_LANES, Room, power_of_two, warps
from rescore.decode.device.pool import add_children, best_children, out_of, pool_of, pool_room, tree_out, write_tree
from rescore.decode.device.slots import DeviceLattices, lattice_of, precedes
from rescore.lattice.tensors import TensorTrees


@triton.jit
def grow_pushed_trees(
    lattices,
    composed,
    pools,
    nodes,
    outs,
    n,
    C: tl.constexpr,
    N_PAD: tl.constexpr,
    K_PAD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The tree of lattice b, by program b. nodes: int32 [B, 2, N_PAD], live prefixes of this slot and of the next."""
    b = tl.program_id(0).to(tl.int64)
    lattice, pool = lattice_of(lattices, b), pool_of(pools, b, lattices.slots, N_PAD, K_PAD)
    own = nodes + b * 2 * N_PAD
    tl.store(pool.live_cost, tl.zeros((), tl.int64))
    tl.store(own, 0)
    slots = tl.load(composed.length + b)
    tl.debug_barrier()
    size, live = 0, 1
    for t in range(slots):
        now, then = own + (t % 2) * N_PAD, own + ((t + 1) % 2) * N_PAD
        row = (b * lattices.slots + t) * C
        for first in range(0, live, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS] bool
            here = at < live
            # [ROWS, K_PAD] int64
            edge = (row + tl.load(now + at, mask=here, other=0)[:, None]) * K_PAD + tl.arange(0, K_PAD)[None, :]
            # [ROWS, K_PAD] float64
            logq = tl.load(composed.cost + edge, mask=here[:, None], other=-float("inf"))
            # [ROWS, K_PAD] int64
            step = to_fixed(rounded(tl.maximum(-logq, 0.0)))
            # [ROWS, 1] int64
            before = tl.load(pool.live_cost + at, mask=here, other=0)[:, None]
            tl.store(
                pool.child_cost + at[:, None] * K_PAD + tl.arange(0, K_PAD)[None, :],
                tl.where(step < IMPOSSIBLE, before + step, IMPOSSIBLE),
            )
        tl.debug_barrier()
        count = best_children(pool, size, live, n, K_PAD, ROWS, BLOCK)
        tl.debug_barrier()
        for first in range(0, count, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS] bool
            here = at < count
            # [ROWS] int32
            child = add_children(lattice, pool, t, size, live, at, here, K_PAD)
            node = tl.load(now + child // K_PAD, mask=here, other=0)
            tl.store(
                then + at,
                tl.load(
                    composed.target + (row + node) * K_PAD + child % K_PAD, mask=here & precedes(t + 1, slots), other=0
                ),
                mask=here,
            )
        tl.debug_barrier()
        size += count
        live = count
    out = out_of(outs, b, n)
    write_tree(pool, out, size, n, N_PAD, ROWS, BLOCK)
    tl.store(out.invalid, tl.load(composed.invalid + b))


def grow_pushed(lattices: DeviceLattices, composed: Composition, n: int) -> TensorTrees:
    """Returns the trees of n nodes of a batch, in one launch."""
    batch, slots, c, k_pad = composed.cost.shape
    n_pad = max(16, power_of_two(n))
    rows = min(n_pad, max(1, MOST_LANES // k_pad))
    room = Room(batch, composed.cost.device)
    out = tree_out(room, n)
    grow_pushed_trees[(batch,)](
        lattices,
        composed,
        pool_room(room, slots, n_pad, k_pad),
        room(2, n_pad),
        out,
        n,
        C=c,
        N_PAD=n_pad,
        K_PAD=k_pad,
        ROWS=rows,
        BLOCK=rows * k_pad,
        num_warps=warps(rows * k_pad),
        **EXACT,
    )
    return TensorTrees(**out._asdict())
