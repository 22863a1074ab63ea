"""Lattices of a model's heads, for drafters; their trees in tensors, by the core on the CPU or by kernels on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.models.draft_step import DraftStep, Heads, HeadsSession, StatelessHeads, top_of_heads
from rescore.lattice.checked import whole
from rescore.lattice.extras import remedy
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage, TensorTrees
from rescore.lattice.tree import Trees

if TYPE_CHECKING:
    from rescore.decode.device.rescoring import DeviceRescorer

LOGP_DTYPES = ("float16", "float32")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsLattice:
    """Makes lattices from the `top_k` candidates of heads 2..h.

    logp_dtype  precision of the log-probabilities; float16, as in dumps, makes online decoding equal a replay
    """

    heads: Heads
    top_k: int = 16
    logp_dtype: str = "float32"

    def __post_init__(self) -> None:
        whole(self.top_k, "top_k", 1, 64)
        if self.logp_dtype not in LOGP_DTYPES:
            raise ValueError(f"logp_dtype: expected one of {', '.join(LOGP_DTYPES)}, got {self.logp_dtype!r}")

    @property
    def slots(self) -> int:
        return self.heads.slots

    def open(self, requests: int) -> HeadsLatticeSession:
        return HeadsLatticeSession(self, self.heads.open(requests))

    def sausages(self, logits: Tensor) -> Sausage:
        """Returns the lattices [B, T, K] of the heads' logits [B, T, D]."""
        ids, logp, _ = top_of_heads(logits, self.top_k, self.heads.vocabulary)
        return Sausage.from_topk(ids, logp.astype(self.logp_dtype))

    def tensors(self, logits: Tensor) -> TensorSausage:
        """The same as tensors: on the logits' device, without synchronisation, if it has kernels; else on the CPU."""
        if not has_kernels(logits.device):
            return TensorSausage.of(self.sausages(logits), torch.device("cpu"))
        found = TensorSausage.from_logits(logits, self.top_k)
        vocabulary = self.heads.vocabulary
        ids = found.ids if vocabulary is None else vocabulary.tokens(found.ids)
        return TensorSausage(ids=ids, cost=found.cost.to(getattr(torch, self.logp_dtype)).float())


class HeadsLatticeSession:
    """The heads of one call, and the lattices of their candidates."""

    def __init__(self, lattice: HeadsLattice, heads: HeadsSession):
        self.lattice, self.heads = lattice, heads
        self.vocab_size = 0  # V, known from the first lattices on

    @property
    def may_rest(self) -> bool:
        """Heads that keep their own state must see every step."""
        return isinstance(self.heads, StatelessHeads)

    def sausages(self, step: DraftStep) -> Sausage:
        logits, vocabulary = self.heads.logits(step), self.lattice.heads.vocabulary
        self.vocab_size = vocabulary.size if vocabulary else logits.shape[-1]
        return self.lattice.sausages(logits)

    def trees(self, rescorer: Rescorer, step: DraftStep, n: int) -> Trees:
        histories, logits = step.contexts(rescorer.context), self.heads.logits(step)
        if not has_kernels(logits.device):
            return rescorer.trees(self.lattice.sausages(logits), histories, n)
        on_device, moved = TensorRescorer(rescorer).on(logits.device), torch.from_numpy(histories).to(logits.device)
        return on_device.trees(self.lattice.tensors(logits), moved, n).host()

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
