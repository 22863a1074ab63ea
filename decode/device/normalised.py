"""Lattices as distributions over drafts, on the device: `NormalisedLattice` for tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from rescore.decode.device.compose import Composition
from rescore.decode.device.pushed_trees import grow_pushed
from rescore.decode.device.slots import DeviceLattices
from rescore.decode.device.walks import draw, follow
from rescore.lattice.tensors import TensorSamples, TensorTrees


class DeviceNormalised:
    """A `TensorNormalised` of `rescore.decode.draft.tensor_rescorer`."""

    def __init__(self, lattices: DeviceLattices, composed: Composition, log_mass: Tensor):
        self._lattices, self._composed = lattices, composed
        self.log_mass, self.exact, self.invalid = log_mass, ~composed.dropped, composed.invalid

    def sample(self, uniforms: Tensor) -> TensorSamples:
        self._expect("uniforms", uniforms, torch.float64)
        tokens, q, logq, lengths = draw(self._lattices.ids, self._composed, uniforms)
        return TensorSamples(tokens=tokens, q=q, ids=self._lattices.ids, logq=logq, lengths=lengths)

    def rows(self, drafts: Tensor) -> Tensor:
        self._expect("drafts", drafts, torch.int32)
        return follow(self._lattices.ids, self._composed, drafts)[0]

    def logq(self, drafts: Tensor) -> Tensor:
        self._expect("drafts", drafts, torch.int32)
        return follow(self._lattices.ids, self._composed, drafts)[1]

    def trees(self, n: int = 64) -> TensorTrees:
        return grow_pushed(self._lattices, self._composed, n)

    def _expect(self, name: str, values: Tensor, dtype: torch.dtype) -> None:
        batch, slots, _ = self._lattices.ids.shape
        if values.dtype != dtype or not values.is_contiguous():
            raise TypeError(
                f"{name}: expected a contiguous tensor of {dtype}, got {values.dtype} with strides "
                f"{list(values.stride())}"
            )
        if values.ndim != 3 or values.shape[0] != batch or values.shape[2] != slots:
            raise ValueError(f"{name}: expected shape [{batch}, p, {slots}], got {list(values.shape)}")
        if values.device != self._lattices.ids.device:
            raise ValueError(f"{name}: expected a tensor on {self._lattices.ids.device}, got {values.device}")
