"""Trees of lattices in tensors: by the native core on the CPU, by kernels on a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rescore.decode.draft.rescorer import Rescorer
from rescore.lattice.extras import remedy
from rescore.lattice.tensors import TensorSausage, TensorTrees

if TYPE_CHECKING:
    from rescore.decode.device.rescoring import DeviceRescorer


def has_kernels(device: torch.device) -> bool:
    """Whether lattices on the device can be rescored there."""
    return device.type == "cuda" and find_spec("triton") is not None


class TensorRescorer:
    """The trees of a `Rescorer` with alpha or head (ValueError without), as tensors on the device of the lattices.

    The first call with lattices of a device copies the models there.
    """

    def __init__(self, rescorer: Rescorer):
        if rescorer.calibrated is not None:
            raise ValueError("rescorer: expected alpha or head, got a calibrated q, whose trees are found in arrays")
        self._rescorer = rescorer
        self._on_device: dict[torch.device, DeviceRescorer] = {}

    def trees(self, sausage: TensorSausage, history: Tensor, n: int = 64) -> TensorTrees:
        """Returns the trees of the n most probable prefixes of a batch of lattices, without synchronisation.

        history  int32, as in `Rescorer.trees`, on the same device. ValueError if the device is not supported
        """
        if sausage.device.type == "cpu":
            return TensorTrees.of(self._rescorer.trees(sausage.host(), history.numpy(), n))
        return self.on(sausage.device).trees(sausage, history, n)

    def on(self, device: torch.device) -> DeviceRescorer:
        """The models and weights on a device, copied by the first call; do not capture that in a graph."""
        if not has_kernels(device):
            raise ValueError(
                f"rescoring on {device}: expected a CUDA device and the package triton ({remedy('triton')}); "
                "move the tensors to the CPU"
            )
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device not in self._on_device:
            from rescore.decode.device.rescoring import DeviceRescorer

            rescorer = self._rescorer
            self._on_device[device] = DeviceRescorer(
                rescorer.models, alpha=rescorer.alpha, head=rescorer.head, device=device
            )
        return self._on_device[device]
