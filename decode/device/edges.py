"""Costs of a slot's candidates after several states at once."""

from __future__ import annotations

import triton
import triton.language as tl

from rescore.decode.device.fixed import rounded
from rescore.decode.device.look_up import match


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
