"""What all launches have in common: how much room a kernel works in, and how it is compiled."""

from __future__ import annotations

import torch
from torch import Tensor

# (node, candidate) pairs that a program works on at a time: 4 for each thread, which its registers hold.
MOST_LANES = 1024
# A fused multiplication and addition would round otherwise than the CPU.
EXACT = {"enable_fp_fusion": False, "num_stages": 1}


def power_of_two(n: int) -> int:
    """The least that is n or more."""
    return 1 << max(0, n - 1).bit_length()


def warps(lanes: int) -> int:
    return 8 if lanes > 512 else 4


class Room:
    """Uninitialised tensors for each of B lattices, from PyTorch's own allocator, which a captured graph keeps."""

    def __init__(self, batch: int, device: torch.device):
        self.batch, self.device = batch, device

    def __call__(self, *shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
        return torch.empty(self.batch, *shape, dtype=dtype, device=self.device)
