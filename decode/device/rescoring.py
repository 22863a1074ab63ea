"""Trees of the rescored lattice on the device of the tensors: a fixed number of launches, without synchronisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.device.grow import DeviceLattices, grow
from rescore.decode.device.models import resident_models
from rescore.lattice.checked import whole
from rescore.lattice.tensors import TensorSausage, TensorTrees
from rescore.lm.model.ngram import NGram

MOST_NODES = 4096


class DeviceRescorer:
    """A `Rescorer`'s models and weights on one device.

    models: as in `Rescorer`. head: float64 [1] or [T]; alpha: float64 [J, 1] or [J, T]. Models are copied to the device
    by the constructor, weights at the first lattice of each T; later calls can be captured in a CUDA graph.
    """

    def __init__(
        self,
        models: Sequence[NGram],
        *,
        alpha: NDArray[np.float64],
        head: NDArray[np.float64],
        device: torch.device,
    ):
        self.models = resident_models(models, device)
        self._weights = alpha, head
        self._of_slots: dict[int, tuple[Tensor, Tensor]] = {}

    def trees(self, sausage: TensorSausage, history: Tensor, n: int) -> TensorTrees:
        """The trees of the n most probable prefixes of a batch, or of a single sausage as a batch of one."""
        return grow(self.models, self.lattices(sausage, history), whole(n, "nodes", 1, MOST_NODES))

    def lattices(self, sausage: TensorSausage, history: Tensor) -> DeviceLattices:
        """The kernels' arguments for a batch."""
        device = self.models.device
        for name, tensor in (("sausage", sausage.ids), ("history", history)):
            if tensor.device != device:
                raise ValueError(f"{name}: expected tensors on {device}, got {tensor.device}")
        ids, cost = (sausage.ids, sausage.cost) if sausage.is_batch else (sausage.ids[None], sausage.cost[None])
        batch, slots, width = ids.shape
        histories = history if history.ndim == 2 else history[None]
        if histories.dtype != torch.int32 or not histories.is_contiguous():
            raise TypeError(
                f"history: expected a contiguous tensor of torch.int32, got {histories.dtype} with strides "
                f"{list(histories.stride())}"
            )
        if histories.ndim != 2 or len(histories) != batch:
            raise ValueError(f"history: expected one row for each of {batch} lattices, got shape {list(history.shape)}")
        alpha, head = self._slot_weights(slots)
        return DeviceLattices(ids, cost, head, alpha, histories, slots, width, histories.shape[1])

    def _slot_weights(self, slots: int) -> tuple[Tensor, Tensor]:
        """alpha float64 [J, T] and head float32 [T]."""
        if slots not in self._of_slots:
            alpha, head = self._weights
            for name, weights in (("alpha", alpha), ("head", head)):
                if weights.shape[-1] not in (1, slots):
                    raise ValueError(f"{name}: expected a weight for each of {slots} slots, got {weights.shape[-1]}")
            wide = torch.tensor(np.broadcast_to(alpha, (len(alpha), slots)), device=self.models.device)
            self._of_slots[slots] = (
                wide,
                torch.tensor(np.broadcast_to(head, slots).astype(np.float32), device=self.models.device),
            )
        return self._of_slots[slots]
