"""Trees of lattices in tensors: by the native core on the CPU, by kernels on a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from rescore.decode.draft.array_rescorer import ArrayRescorer
from rescore.lattice.extras import remedy
from rescore.lattice.tensors import TensorSausage, TensorTrees


class TensorRescorer(Protocol):
    """`Rescorer`'s search of trees on one device."""

    def trees(self, sausage: TensorSausage, history: Tensor, n: int) -> TensorTrees: ...


def has_kernels(device: torch.device) -> bool:
    """Whether lattices on the device can be rescored there."""
    return device.type == "cuda" and find_spec("triton") is not None


def indexed(device: torch.device) -> torch.device:
    """The device with its index, as tensors report it."""
    return (
        torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device
    )


def open_tensor_rescorer(rescorer: ArrayRescorer, device: torch.device) -> TensorRescorer:
    """Returns the rescorer for a device; ValueError if the device is not supported."""
    if device.type == "cpu":
        return HostRescorer(rescorer)
    if not has_kernels(device):
        raise ValueError(
            f"rescoring on {device}: expected a CUDA device and the package triton ({remedy('triton')}); "
            "move the tensors to the CPU"
        )
    from rescore.decode.device.rescoring import DeviceRescorer

    return DeviceRescorer(rescorer.models, alpha=rescorer.alpha, head=rescorer.head, device=device)


class HostRescorer:
    """The native core on CPU tensors, without copies."""

    def __init__(self, rescorer: ArrayRescorer):
        self._rescorer = rescorer

    def trees(self, sausage: TensorSausage, history: Tensor, n: int) -> TensorTrees:
        return TensorTrees.of(self._rescorer.trees(sausage.host(), history.numpy(), n))
