"""Rescoring of lattices in tensors: by the native core on the CPU, by kernels on a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Protocol

import torch
from torch import Tensor

from rescore.decode.draft.array_rescorer import ArrayRescorer
from rescore.decode.draft.normalised import NormalisedLattice
from rescore.lattice.extras import remedy
from rescore.lattice.tensors import TensorDrafts, TensorSamples, TensorSausage, TensorTrees


class TensorNormalised(Protocol):
    """q over the drafts of a batch of lattices, from `Rescorer.normalise`; a single sausage is a batch of one.

    exact     bool [B]: q covers the whole lattice. Where false, a slot reached more states than were kept, and q is a
              distribution over the remaining drafts: verification stays lossless, drafts are worse
    invalid   bool [B]: ids or history had tokens outside every model's vocabulary; they were left out
    log_mass  float64 [B]: as `NormalisedLattice.log_mass`; NaN if normalised locally
    """

    exact: Tensor
    invalid: Tensor
    log_mass: Tensor

    def sample(self, uniforms: Tensor) -> TensorSamples:
        """Samples p drafts of each lattice, as `NormalisedLattice.sample`. uniforms: float64 [B, p, T] in [0, 1)."""

    def rows(self, drafts: Tensor) -> Tensor:
        """q of every candidate along drafts int32 [B, p, T], padding -1: float64 [B, p, T, K], by rank."""

    def logq(self, drafts: Tensor) -> Tensor:
        """ln q of drafts or prefixes, int32 [B, p, T], padding -1: float64 [B, p]."""

    def trees(self, n: int = 64) -> TensorTrees:
        """The trees of the n most probable prefixes under q."""


class TensorRescorer(Protocol):
    """`Rescorer`'s searches on one device."""

    def paths(self, sausage: TensorSausage, history: Tensor, p: int, semantics: str) -> TensorDrafts: ...

    def trees(self, sausage: TensorSausage, history: Tensor, n: int) -> TensorTrees: ...

    def normalise(
        self, sausage: TensorSausage, history: Tensor, *, temperature: float, local: bool
    ) -> TensorNormalised: ...


def has_kernels(device: torch.device) -> bool:
    """Whether lattices on the device can be rescored there."""
    return device.type == "cuda" and find_spec("triton") is not None


def indexed(device: torch.device) -> torch.device:
    """The device with its index, as tensors report it."""
    return (
        torch.device("cuda", torch.cuda.current_device()) if device.type == "cuda" and device.index is None else device
    )


def open_tensor_rescorer(rescorer: ArrayRescorer, device: torch.device, capacity: int) -> TensorRescorer:
    """Returns the rescorer for a device; ValueError if the device is not supported."""
    if device.type == "cpu":
        return HostRescorer(rescorer)
    if not has_kernels(device):
        raise ValueError(
            f"rescoring on {device}: expected a CUDA device and the package triton ({remedy('triton')}); "
            "move the tensors to the CPU"
        )
    from rescore.decode.device.rescoring import DeviceRescorer

    return DeviceRescorer(rescorer.models, alpha=rescorer.alpha, head=rescorer.head, capacity=capacity, device=device)


class HostRescorer:
    """The native core on CPU tensors, without copies."""

    def __init__(self, rescorer: ArrayRescorer):
        self._rescorer = rescorer

    def paths(self, sausage: TensorSausage, history: Tensor, p: int, semantics: str) -> TensorDrafts:
        drafts = self._rescorer.paths(sausage.host(), history.numpy(), p, semantics)
        tokens, cost, count = (torch.as_tensor(values) for values in (drafts.tokens, drafts.cost, drafts.count))
        return TensorDrafts(
            tokens=tokens,
            cost=cost,
            count=count,
            exact=torch.ones_like(count, dtype=torch.bool),
            invalid=torch.zeros_like(count, dtype=torch.bool),
        )

    def trees(self, sausage: TensorSausage, history: Tensor, n: int) -> TensorTrees:
        return TensorTrees.of(self._rescorer.trees(sausage.host(), history.numpy(), n))

    def normalise(self, sausage: TensorSausage, history: Tensor, *, temperature: float, local: bool) -> HostNormalised:
        batch = sausage if sausage.is_batch else TensorSausage(ids=sausage.ids[None], cost=sausage.cost[None])
        return HostNormalised(self._rescorer.normalise(batch.host(), history.numpy(), temperature, local))


class HostNormalised:
    """A `NormalisedLattice` of a batch, with tensors as arguments and results."""

    def __init__(self, lattice: NormalisedLattice):
        self._lattice = lattice
        batch = len(lattice.ids)
        self.exact, self.invalid = torch.ones(batch, dtype=torch.bool), torch.zeros(batch, dtype=torch.bool)
        self.log_mass = (
            torch.full((batch,), torch.nan, dtype=torch.float64)
            if lattice.local
            else torch.from_numpy(lattice.log_mass)
        )

    def sample(self, uniforms: Tensor) -> TensorSamples:
        drawn = self._lattice.sample(uniforms.numpy())
        parts = {name: torch.from_numpy(getattr(drawn, name)) for name in ("tokens", "q", "ids", "logq", "lengths")}
        return TensorSamples(**parts)

    def rows(self, drafts: Tensor) -> Tensor:
        return torch.from_numpy(self._lattice.rows(drafts.numpy()))

    def logq(self, drafts: Tensor) -> Tensor:
        return torch.from_numpy(self._lattice.logq(drafts.numpy()))

    def trees(self, n: int = 64) -> TensorTrees:
        return TensorTrees.of(self._lattice.trees(n))
