"""Composed lattices as distributions: turns an edge's cost into ln q(its candidate | its node).

Global normalisation includes the mass of all completions of a node: weight pushing in the log semiring (Mohri,
"Weighted automata algorithms", 2009, section 5.3). Local normalisation is a softmax over each node's candidates.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from rescore.decode.device.compose import Composition
from rescore.decode.device.launch import EXACT, MOST_LANES, power_of_two, warps
from rescore.decode.device.slots import precedes


@triton.jit
def push_weights(
    composed,
    mass,
    log_mass,
    temperature,
    slots,
    LOCAL: tl.constexpr,
    C: tl.constexpr,
    K_PAD: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Lattice b, by program b; overwrites costs. mass: float64 [B, T + 1, C]; temperature: float64 []."""
    b = tl.program_id(0).to(tl.int64)
    row = b * slots
    own = mass + (row + b) * C
    length = tl.load(composed.length + b)
    tl.store(own, tl.zeros((), tl.float64))
    for back in range(0, length):
        t = length - 1 - back
        inner = precedes(t + 1, length)  # not the last slot, after which there are no nodes
        nodes = tl.load(composed.nodes + row + t)
        tl.debug_barrier()
        for first in range(0, nodes, ROWS):
            # [ROWS] int32
            at = first + tl.arange(0, ROWS)
            # [ROWS, 1] bool
            here = (at < nodes)[:, None]
            # [ROWS, K_PAD] int64
            edge = ((row + t) * C + at[:, None]) * K_PAD + tl.arange(0, K_PAD)[None, :]
            # [ROWS, K_PAD] float64
            score = -tl.load(composed.cost + edge, mask=here, other=float("inf")) / tl.load(temperature)
            # [ROWS, K_PAD] int32
            to = tl.load(composed.target + edge, mask=here & inner & (score > -float("inf")), other=-1)
            # [ROWS, K_PAD] float64
            score = tl.where(inner & (to < 0), -float("inf"), score)
            if not LOCAL:
                # [ROWS, K_PAD] float64
                score += tl.load(own + (t + 1) * C + to, mask=to >= 0, other=0.0)
            # [ROWS, 1] float64
            most = tl.max(score, axis=1)[:, None]
            # [ROWS, K_PAD] bool
            possible = score > -float("inf")
            # [ROWS, 1] float64
            total = tl.sum(tl.where(possible, tl.exp(score - tl.where(possible, most, 0.0)), 0.0), axis=1)[:, None]
            log_total = tl.log(tl.where(total > 0, total, 1.0))
            tl.store(
                composed.cost + edge,
                tl.where(possible, score - tl.where(possible, most, 0.0) - log_total, -float("inf")),
                mask=here,
            )
            tl.store(own + t * C + at[:, None], most + log_total, mask=here)
    tl.debug_barrier()
    if LOCAL:
        tl.store(log_mass + b, float("nan"))
    else:
        tl.store(log_mass + b, tl.load(own))


def push(composed: Composition, temperature: float, local: bool) -> tuple[Composition, Tensor]:
    """Returns the composition with ln q in place of its costs, -inf if impossible, and log_mass float64 [B], NaN if
    local; in one launch.
    """
    batch, slots, c, k_pad = composed.cost.shape
    mass = torch.empty(batch, slots + 1, c, dtype=torch.float64, device=composed.cost.device)
    log_mass = torch.empty(batch, dtype=torch.float64, device=composed.cost.device)
    divisor = torch.full((), temperature, dtype=torch.float64, device=composed.cost.device)
    rows = min(c, max(1, MOST_LANES // k_pad))
    push_weights[(batch,)](
        composed,
        mass,
        log_mass,
        divisor,
        slots,
        LOCAL=local,
        C=c,
        K_PAD=k_pad,
        ROWS=power_of_two(rows),
        num_warps=warps(rows * k_pad),
        **EXACT,
    )
    return composed, log_mass
