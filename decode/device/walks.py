"""Paths through lattices with ln q on their edges, sampled or given. A program walks several paths of a lattice."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rescore.decode.device.compose import Composition
from rescore.decode.device.launch import EXACT, MOST_LANES, power_of_two, warps
from rescore.decode.device.slots import precedes


@triton.jit
def row_of(composed, at, node, walking, K_PAD: tl.constexpr):
    """ln q of the candidates after nodes [R] of row `at`: float64 [R, K_PAD]; -inf for paths that have ended."""
    # [R, K_PAD] int64
    edge = (at * K_PAD + node * K_PAD)[:, None] + tl.arange(0, K_PAD)[None, :]
    return tl.load(composed.cost + edge, mask=walking[:, None], other=-float("inf"))


@triton.jit
def pick(values, rank, K_PAD: tl.constexpr):
    """values [R, K_PAD] at ranks [R]; other values may be infinite."""
    # [R, K_PAD] bool
    chosen = tl.arange(0, K_PAD)[None, :] == rank[:, None]
    return tl.sum(tl.where(chosen, values, 0.0), axis=1)


@triton.jit
def draw_paths(
    ids,
    composed,
    uniforms,
    tokens,
    q,
    logq,
    lengths,
    paths,
    slots,
    width,
    C: tl.constexpr,
    K_PAD: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Samples paths [B, p]: a token is the first whose cumulative q exceeds the slot's uniform."""
    b = tl.program_id(0).to(tl.int64)
    # [ROWS] int32
    path = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    # [ROWS] int64
    own = b * paths + path
    # [ROWS] bool
    here = path < paths
    # [1, K_PAD] int32
    rank = tl.arange(0, K_PAD)[None, :]
    length = tl.load(composed.length + b)
    # [ROWS] int64
    node = tl.zeros((ROWS,), tl.int64)
    # [ROWS] float64
    total_logq = tl.zeros((ROWS,), tl.float64)
    # [ROWS] int32
    taken = tl.zeros((ROWS,), tl.int32)
    # [ROWS] bool
    walking = here
    for t in range(0, slots):
        at = (b * slots + t) * C
        # [ROWS, K_PAD] float64
        row = row_of(composed, at, node, walking & precedes(t, length), K_PAD)
        mass = tl.exp(row)
        # [ROWS] bool
        walking = walking & (tl.max(mass, axis=1) > 0)
        # [ROWS, K_PAD] float64
        mass = tl.where(walking[:, None], mass, 0.0)
        tl.store(q + ((own * slots + t) * width)[:, None] + rank, mass, mask=here[:, None] & (rank < width))
        below = tl.cumsum(mass, axis=1)
        # [ROWS] float64
        bar = tl.load(uniforms + own * slots + t, mask=here, other=0.0) * tl.max(below, axis=1)
        # [ROWS] int32
        last = tl.max(tl.where(mass > 0, rank, 0), axis=1)
        chosen = tl.minimum(tl.sum((below <= bar[:, None]).to(tl.int32), axis=1), last)
        token = tl.load(ids + (b * slots + t) * width + chosen, mask=walking, other=-1)
        tl.store(tokens + own * slots + t, token, mask=here)
        # [ROWS] float64
        total_logq += tl.where(walking, pick(row, chosen, K_PAD), 0.0)
        # [ROWS] int32
        taken += walking.to(tl.int32)
        # [ROWS] int64
        node = tl.load(
            composed.target + (at + node) * K_PAD + chosen, mask=walking & precedes(t + 1, length), other=0
        ).to(tl.int64)
        # [ROWS] bool
        walking = walking & (node >= 0)
    tl.store(logq + own, total_logq, mask=here)
    tl.store(lengths + own, taken, mask=here)


@triton.jit
def follow_paths(
    ids, composed, drafts, q, logq, paths, slots, width, C: tl.constexpr, K_PAD: tl.constexpr, ROWS: tl.constexpr
):
    """ln q of given paths [B, p, T], padding -1, and q of the candidates along them."""
    b = tl.program_id(0).to(tl.int64)
    # [ROWS] int32
    path = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    # [ROWS] int64
    own = b * paths + path
    # [ROWS] bool
    here = path < paths
    # [1, K_PAD] int32
    rank = tl.arange(0, K_PAD)[None, :]
    length = tl.load(composed.length + b)
    # [ROWS] int64
    node = tl.zeros((ROWS,), tl.int64)
    # [ROWS] float64
    total_logq = tl.zeros((ROWS,), tl.float64)
    # [ROWS] bool
    walking = here
    for t in range(0, slots):
        at = (b * slots + t) * C
        # [ROWS, K_PAD] float64
        row = row_of(composed, at, node, walking & precedes(t, length), K_PAD)
        tl.store(q + ((own * slots + t) * width)[:, None] + rank, tl.exp(row), mask=here[:, None] & (rank < width))
        # [ROWS] int32
        token = tl.load(drafts + own * slots + t, mask=walking, other=-1)
        # [ROWS] bool
        walking = walking & (token >= 0)
        # [1, K_PAD] int32
        listed = tl.load(ids + (b * slots + t) * width + rank, mask=rank < width, other=-1)
        # [ROWS] int32
        chosen = tl.min(tl.where((listed == token[:, None]) & (row > -float("inf")), rank, K_PAD), axis=1)
        # [ROWS] bool
        never = walking & (chosen == K_PAD)
        # [ROWS] int32
        chosen = tl.where(chosen == K_PAD, 0, chosen)
        # [ROWS] float64
        total_logq = tl.where(never, -float("inf"), total_logq + tl.where(walking, pick(row, chosen, K_PAD), 0.0))
        # [ROWS] bool
        walking = walking & (never == 0)
        # [ROWS] int64
        node = tl.load(
            composed.target + (at + node) * K_PAD + chosen, mask=walking & precedes(t + 1, length), other=0
        ).to(tl.int64)
    tl.store(logq + own, total_logq, mask=here)


def draw(ids: Tensor, composed: Composition, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Samples drafts with uniforms [B, p, T]: tokens [B, p, T], q [B, p, T, K], logq [B, p] and lengths [B, p]; in one
    launch.
    """
    batch, slots, width = ids.shape
    paths = uniforms.shape[1]
    tokens, lengths = (
        torch.empty(batch, paths, *shape, dtype=torch.int32, device=ids.device) for shape in ((slots,), ())
    )
    q, logq = (
        torch.empty(batch, paths, *shape, dtype=torch.float64, device=ids.device) for shape in ((slots, width), ())
    )
    grid, sizes = _grid(composed, paths)
    draw_paths[grid](ids, composed, uniforms, tokens, q, logq, lengths, paths, slots, width, **sizes)
    return tokens, q, logq, lengths


def follow(ids: Tensor, composed: Composition, drafts: Tensor) -> tuple[Tensor, Tensor]:
    """Returns q [B, p, T, K] along drafts [B, p, T], and their logq [B, p]; in one launch."""
    batch, slots, width = ids.shape
    paths = drafts.shape[1]
    q, logq = (
        torch.empty(batch, paths, *shape, dtype=torch.float64, device=ids.device) for shape in ((slots, width), ())
    )
    grid, sizes = _grid(composed, paths)
    follow_paths[grid](ids, composed, drafts, q, logq, paths, slots, width, **sizes)
    return q, logq


def _grid(composed: Composition, paths: int) -> tuple[tuple[int, int], dict]:
    batch, _, c, k_pad = composed.cost.shape
    rows = min(power_of_two(paths), max(1, MOST_LANES // k_pad))
    return (batch, -(-paths // rows)), {"C": c, "K_PAD": k_pad, "ROWS": rows, "num_warps": warps(rows * k_pad), **EXACT}
