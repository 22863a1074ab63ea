"""Launch parameters shared by all kernels: workspace and compilation options."""

from __future__ import annotations

import torch
from torch import Tensor

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
