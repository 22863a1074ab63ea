"""Rescoring on the device of the tensors: every call is a fixed number of launches, without synchronisation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.device.best import best
from rescore.decode.device.compose import compose
from rescore.decode.device.grow import grow
from rescore.decode.device.normalised import DeviceNormalised
from rescore.decode.device.push import push
from rescore.decode.device.resident import resident_models
from rescore.decode.device.slots import DeviceLattices
from rescore.lattice.tensors import TensorDrafts, TensorSausage, TensorTrees
from rescore.lm.ngram import NGram

MOST_NODES, MOST_PATHS = 4096, 1024
LEAST_TEMPERATURE, MOST_TEMPERATURE = 1e-6, 1e6  # scores stay finite


class DeviceRescorer:
    """A `Rescorer`'s models and weights on one device.

    models    as in `Rescorer`. head: float64 [1] or [T]; alpha: float64 [J, 1] or [J, T]. Models are copied to the
              device by the constructor, weights at the first lattice of each T; later calls can be captured in a CUDA
              graph
    capacity  tuples of model states that `paths` and `normalise` keep per slot; `exact` says where that was enough
    """

    def __init__(
        self,
        models: Sequence[NGram],
        *,
        alpha: NDArray[np.float64],
        head: NDArray[np.float64],
        capacity: int,
        device: torch.device,
    ):
        self.models = resident_models(models, device)
        self.capacity = capacity
        self._weights = alpha, head
        self._of_slots: dict[int, tuple[Tensor, Tensor]] = {}

    def trees(self, sausage: TensorSausage, history: Tensor, n: int) -> TensorTrees:
        """The trees of the n most probable prefixes of a batch, or of a single sausage as a batch of one."""
        if not 1 <= n <= MOST_NODES:
            raise ValueError(f"nodes: expected 1 to {MOST_NODES}, got {n}")
        return grow(self.models, self.lattices(sausage, history), n)

    def paths(self, sausage: TensorSausage, history: Tensor, p: int, semantics: str) -> TensorDrafts:
        """The p best paths."""
        if semantics != "failure":
            raise ValueError(
                f"semantics: expected failure, the only one on {self.models.device}, got {semantics}; "
                "move the lattices to the CPU for others"
            )
        if not 1 <= p <= MOST_PATHS:
            raise ValueError(f"paths p: expected 1 to {MOST_PATHS}, got {p}")
        lattices = self.lattices(sausage, history)
        drafts = best(lattices, compose(self.models, lattices, self.capacity, parts=True), p)
        return drafts if sausage.is_batch else drafts.single

    def normalise(
        self, sausage: TensorSausage, history: Tensor, *, temperature: float, local: bool
    ) -> DeviceNormalised:
        """The lattices as distributions q over their drafts."""
        if not LEAST_TEMPERATURE <= temperature <= MOST_TEMPERATURE:
            raise ValueError(
                f"temperature: expected {LEAST_TEMPERATURE:f} to {MOST_TEMPERATURE:.0f}, got {temperature:f}"
            )
        lattices = self.lattices(sausage, history)
        composed = compose(self.models, lattices, self.capacity, parts=not local)
        return DeviceNormalised(lattices, *push(composed, temperature, local))

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
