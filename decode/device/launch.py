"""Launch parameters shared by all kernels: workspace and compilation options."""

from __future__ import annotations

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
def rounded(nats):
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


class Room:
    """Uninitialised tensors for each of B lattices, from PyTorch's allocator, so that a captured graph owns them."""

    def __init__(self, batch: int, device: torch.device):
        self.batch, self.device = batch, device

    def __call__(self, *shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(self.batch, *shape, dtype=dtype, device=self.device)
