"""Lattices, and the trees found in them, as torch tensors on their device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.lattice.sausage import Sausage, check_shapes, unchecked_sausage
from rescore.lattice.short_repr import short_repr
from rescore.lattice.tree import Trees


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorSausage:
    """One lattice [T, K] or a batch of them [B, T, K] in tensors on one device.

    ids int32, cost float32, contiguous, as in `Sausage`. Values are not checked, since that would wait for the device:
    a slot ends at its first padding and a lattice at its first empty slot; anything after that is ignored.
    """

    ids: Tensor
    cost: Tensor

    __repr__ = short_repr

    def __post_init__(self) -> None:
        for name, tensor, dtype in (("ids", self.ids, torch.int32), ("cost", self.cost, torch.float32)):
            if not isinstance(tensor, Tensor) or tensor.dtype != dtype:
                raise TypeError(
                    f"{name}: expected a tensor of {dtype}, got {getattr(tensor, 'dtype', type(tensor).__name__)}"
                )
            if not tensor.is_contiguous():
                raise ValueError(
                    f"{name}: expected a contiguous tensor, got strides {list(tensor.stride())} of shape "
                    f"{list(tensor.shape)}; call .contiguous()"
                )
        check_shapes(self.ids, self.cost)
        if self.cost.device != self.ids.device:
            raise ValueError(f"cost: expected the device of ids, {self.ids.device}, got {self.cost.device}")

    @classmethod
    def from_logits(cls, logits: Tensor, k: int) -> TensorSausage:
        """The k best tokens of each slot of logits [.., T, V], cost = -ln softmax over all V.

        Does not wait for the device. Unlike in `Sausage.from_logits`, logits are not checked, and the order of equal
        ones is up to the device.
        """
        ids, logp = top_on_device(logits, k)
        return cls(ids=ids, cost=-logp)

    @classmethod
    def of(cls, sausage: Sausage, device: torch.device) -> TensorSausage:
        """Copies a sausage to a device; on the CPU, the tensors share its memory."""
        return cls(ids=torch.from_numpy(sausage.ids).to(device), cost=torch.from_numpy(sausage.cost).to(device))

    @property
    def is_batch(self) -> bool:
        return self.ids.ndim == 3

    @property
    def device(self) -> torch.device:
        return self.ids.device

    def host(self) -> Sausage:
        """The same lattices in numpy arrays, not checked; tensors on the CPU share their memory."""
        return unchecked_sausage(self.ids.cpu().numpy(), self.cost.cpu().numpy())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorTrees:
    """`Trees` in tensors: the best trees of a batch.

    tokens, parents, depths int32 [B, n] (padding -1, -1, 0), logq float32 [B, n] (padding -inf), count int32 [B];
    invalid bool [B]: ids or history had tokens outside the vocabulary, which were ignored.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    logq: Tensor
    count: Tensor
    invalid: Tensor

    __repr__ = short_repr

    @classmethod
    def of(cls, trees: Trees) -> TensorTrees:
        """Tensors on the CPU that share the memory of `trees`."""
        parts = {name: torch.from_numpy(getattr(trees, name)) for name in Trees.__slots__}
        return cls(**parts, invalid=torch.zeros(len(trees), dtype=torch.bool))

    def ancestor_mask(self) -> Tensor:
        """bool [B, n, n]: true where j is node i or an ancestor of it. Padding attends to itself."""
        n = self.tokens.shape[1]
        own = torch.eye(n, dtype=torch.bool, device=self.tokens.device).expand(len(self.tokens), -1, -1)
        # Pointer doubling: each round extends the mask from ancestors up to 2^i levels above to 2^(i + 1).
        above = torch.where(self.parents < 0, n, self.parents).long()
        above = torch.nn.functional.pad(above, (0, 1), value=n)
        mask = torch.nn.functional.pad(own, (0, 0, 0, 1), value=False)
        for _ in range((n - 1).bit_length()):
            mask = mask | mask.gather(1, above[:, :, None].expand(-1, -1, n))
            above = above.gather(1, above)
        return mask[:, :n]

    def position_ids(self, base: Tensor) -> Tensor:
        """int32 [B, n], base [B] + depth, where base is the position of the root token."""
        return base[:, None].int() + self.depths

    def host(self) -> Trees:
        """The same trees in numpy arrays; waits for the device."""
        return Trees(**{name: getattr(self, name).cpu().numpy() for name in Trees.__slots__})


PART = 512  # tokens


def top_on_device(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k most probable tokens of logits [..., V], int32 [..., k], and their logp, float32, without waiting for the
    device. The order of equal ones is up to it. ValueError for k > V.

    They are in the k parts of the vocabulary with the greatest logits. Two searches of short rows take a GPU fewer
    kernels than one of rows as long as a vocabulary.
    """
    vocab_size = logits.shape[-1]
    if k > vocab_size:
        raise ValueError(f"k: expected at most V = {vocab_size}, got {k}")
    logits = logits.float()
    parts = torch.nn.functional.pad(logits, (0, -vocab_size % PART), value=-torch.inf).unflatten(-1, (-1, PART))
    which = parts.amax(dim=-1).topk(min(k, parts.shape[-2]), dim=-1).indices
    few = parts.gather(-2, which[..., None].expand(*which.shape, PART)).flatten(-2)
    best, at = few.topk(k, dim=-1)
    ids = (which.gather(-1, at // PART) * PART + at % PART).clamp(max=vocab_size - 1)
    return ids.int(), best - logits.logsumexp(dim=-1, keepdim=True)


def logit_rows(logits: Tensor) -> NDArray[Any]:
    """Logits [..., V] as contiguous rows [m, V]: float32, or bfloat16 as its bits, uint16.

    Contiguous float32 and bfloat16 are not copied; other dtypes are converted to float32.
    """
    rows = logits.detach().reshape(-1, logits.shape[-1]).contiguous()
    if rows.dtype == torch.bfloat16:
        return rows.view(torch.uint16).numpy()
    return rows.float().numpy()
