"""A pass that drafts for itself: from hidden states to the target's choices, without values on the host."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rescore.decode.draft.heads_lattice import HeadsLattice
from rescore.decode.draft.tensor_rescorer import TensorRescorer
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.models.draft_step import StatelessHeads
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftedPass:
    """Heads, their candidates, the rescored tree of n nodes, and the pass that verifies it. ValueError unless the heads
    see hidden states alone.

    All shapes follow from those of the arguments, so on a GPU the whole pass can be captured in a graph after a first
    call.
    """

    target: Target
    lattice: HeadsLattice
    rescorer: TensorRescorer
    nodes: int

    def __post_init__(self) -> None:
        if not isinstance(self.lattice.heads, StatelessHeads):
            raise ValueError(
                f"heads: expected heads that see hidden states alone, got {type(self.lattice.heads).__name__}"
            )

    def block(self, hidden: Tensor, history: Tensor, start: Tensor, end: int) -> Block:
        """The root tokens and their trees, after start int64 [B] tokens, in slots below `end` of the cache.

        hidden [B, width] gave the root tokens; history int32 [B, m], at least `Rescorer.context` tokens, ends with
        them.
        """
        assert isinstance(self.lattice.heads, StatelessHeads)
        logits = self.lattice.heads.of_hidden(hidden, history[:, -1])
        trees = self.rescorer.trees(self.lattice.tensors(logits), history, self.nodes)
        return TreeLayout().lay_tensors(trees, history[:, -1], start, end)

    def __call__(self, hidden: Tensor, history: Tensor, start: Tensor, end: int, cache: SlotCache) -> Tensor:
        """The target's most probable token after every column of the block, int64 [B, 1 + n]."""
        return self.target.logits(self.target.read(self.block(hidden, history, start, end), cache)).argmax(dim=-1)
