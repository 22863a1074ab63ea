"""Lattices as distributions over drafts, on the device: `NormalisedLattice` in tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rescore.decode.tensors import TensorTrees

from .compose import Composition
from .pushed_trees import grow_pushed
from .slots import Lattices
from .walks import draw, follow


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorSamples:
    """Drafts drawn from normalised lattices, as `SampledDrafts`, in tensors.

    tokens int32 [B, p, T], padding -1; q float64 [B, p, T, K]; ids int32 [B, T, K]; logq float64 [B, p]; lengths int32 [B, p]
    """

    tokens: Tensor
    q: Tensor
    ids: Tensor
    logq: Tensor
    lengths: Tensor


class TensorNormalised:
    """q over the drafts of a batch of lattices; of a single sausage, a batch of one. `Rescorer.normalise` makes it.

    exact     bool [B]: q is that of the whole lattice. Where it is not, a slot reached more states than were kept, and q is a
              distribution over the drafts that are left: lossless to verify with, but worse drafts.
    invalid   bool [B]: ids or history had tokens that no model has; they were left out
    log_mass  float64 [B]: as `NormalisedLattice.log_mass`; of local normalisation it means nothing
    """

    def __init__(self, lattices: Lattices, composed: Composition, log_mass: Tensor):
        self._lattices, self._composed = lattices, composed
        self.log_mass, self.exact, self.invalid = log_mass, ~composed.dropped, composed.invalid

    def sample(self, uniforms: Tensor) -> TensorSamples:
        """p drafts of each lattice, one uniform float64 [B, p, T] in [0, 1) for each token, as `NormalisedLattice.sample`."""
        self._expect("uniforms", uniforms, torch.float64)
        tokens, q, logq, lengths = draw(self._lattices.ids, self._composed, uniforms)
        return TensorSamples(tokens=tokens, q=q, ids=self._lattices.ids, logq=logq, lengths=lengths)

    def rows(self, drafts: Tensor) -> Tensor:
        """q of every candidate along drafts int32 [B, p, T], padding -1: float64 [B, p, T, K], by rank."""
        self._expect("drafts", drafts, torch.int32)
        return follow(self._lattices.ids, self._composed, drafts)[0]

    def logq(self, drafts: Tensor) -> Tensor:
        """ln q of drafts, or of prefixes, int32 [B, p, T], padding -1: float64 [B, p]."""
        self._expect("drafts", drafts, torch.int32)
        return follow(self._lattices.ids, self._composed, drafts)[1]

    def trees(self, n: int = 64) -> TensorTrees:
        """The trees of the n most probable prefixes under q."""
        return grow_pushed(self._lattices, self._composed, n)

    def _expect(self, name: str, values: Tensor, dtype: torch.dtype) -> None:
        batch, slots, _ = self._lattices.ids.shape
        if values.dtype != dtype or not values.is_contiguous():
            raise TypeError(f"{name}: expected a contiguous tensor of {dtype}, got {values.dtype} with strides {list(values.stride())}")
        if values.ndim != 3 or values.shape[0] != batch or values.shape[2] != slots:
            raise ValueError(f"{name}: expected shape [{batch}, p, {slots}], got {list(values.shape)}")
        if values.device != self._lattices.ids.device:
            raise ValueError(f"{name}: expected a tensor on {self._lattices.ids.device}, got {values.device}")
