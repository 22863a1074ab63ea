"""Lattices of a model's heads, for drafters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rescore.decode.models.draft_step import DraftStep, Heads, HeadsSession, StatelessHeads, top_of_heads
from rescore.lattice.checked import whole
from rescore.lattice.sausage import Sausage

LOGP_DTYPES = ("float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsLattice:
    """Makes lattices from the `top_k` candidates of heads 2..h, or all if they have fewer.

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

    @property
    def keeps_state(self) -> bool:
        """Whether the heads keep their own state, so that they need the target's after every token."""
        return not isinstance(self.heads, StatelessHeads)

    def open(self, requests: int) -> HeadsLatticeSession:
        return HeadsLatticeSession(self, self.heads.open(requests))

    def sausages(self, logits: Tensor) -> Sausage:
        """Returns the lattices [B, T, K] of the heads' logits [B, T, D]."""
        ids, logp, _ = top_of_heads(logits, min(self.top_k, logits.shape[-1]), self.heads.vocabulary)
        return Sausage.from_topk(ids, logp.astype(self.logp_dtype))


class HeadsLatticeSession:
    """The heads of one call, and the lattices of their candidates."""

    def __init__(self, lattice: HeadsLattice, heads: HeadsSession):
        self.lattice, self.heads = lattice, heads
        self.vocab_size = 0  # V, known from the first lattices on

    @property
    def may_rest(self) -> bool:
        """Heads that keep their own state must see every step."""
        return not self.lattice.keeps_state

    def sausages(self, step: DraftStep) -> Sausage:
        logits, vocabulary = self.heads.logits(step), self.lattice.heads.vocabulary
        self.vocab_size = vocabulary.size if vocabulary else logits.shape[-1]
        return self.lattice.sausages(logits)
