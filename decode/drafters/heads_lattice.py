"""The lattice of a model's heads, as drafters see it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rescore.decode.models.heads import Heads, top_of_heads
from rescore.decode.rescoring.tensor_rescorer import has_kernels
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage

LOGP_DTYPES = ("float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsLattice:
    """The lattices of heads 2..h: their `top_k` candidates in every slot.

    logp_dtype  what log-probabilities are rounded to; float16 is what dumps hold, so that online equals the replay
    """

    heads: Heads
    top_k: int = 16
    logp_dtype: str = "float32"

    def __post_init__(self) -> None:
        if not 1 <= self.top_k <= 64:
            raise ValueError(f"top_k: expected 1..64 candidates for each slot, got {self.top_k}")
        if self.logp_dtype not in LOGP_DTYPES:
            raise ValueError(f"logp_dtype: expected one of {', '.join(LOGP_DTYPES)}, got {self.logp_dtype!r}")

    def sausages(self, logits: Tensor) -> Sausage:
        """The lattices [B, T, K] of the heads' logits [B, T, D]."""
        ids, logp, _ = top_of_heads(logits, self.top_k, self.heads.vocabulary)
        return Sausage.from_topk(ids, logp.astype(self.logp_dtype))

    def tensors(self, logits: Tensor) -> TensorSausage:
        """The same in tensors: on the logits' device where there are kernels to go on with, and then nothing is waited
        for; else on the CPU.
        """
        if not has_kernels(logits.device):
            return TensorSausage.of(self.sausages(logits), torch.device("cpu"))
        found = TensorSausage.from_logits(logits, self.top_k)
        vocabulary = self.heads.vocabulary
        ids = found.ids if vocabulary is None else vocabulary.tokens(found.ids)
        return TensorSausage(ids=ids, cost=found.cost.to(getattr(torch, self.logp_dtype)).float())
