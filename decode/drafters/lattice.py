"""Drafts from the lattice of a model's heads: the best paths, the best tree, or paths drawn from q."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rescore.decode.drafters.drafter import EMPTY, DrafterSession
from rescore.decode.drafters.tree_search import TreeSearch, moved, open_search
from rescore.decode.drafters.width import AutoWidth, WidthSession
from rescore.decode.models.heads import Heads, HeadsSession, Memoryless, Step
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.tensor_rescorer import has_kernels
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.sausage import Sausage
from rescore.lattice.tensors import TensorSausage
from rescore.lattice.top import top_of_logits
from rescore.lattice.tree import TokenTree

LOGP_DTYPES = ("float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """The lattice of heads 2..h: their `top_k` candidates.

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
        """The lattices [B, T, K] of the heads' logits [B, T, V]."""
        ids, logp, _ = top_of_logits(logits, self.top_k)
        return Sausage.from_topk(ids, logp.astype(self.logp_dtype))

    def tensors(self, logits: Tensor) -> TensorSausage:
        """The same in tensors: on the logits' device where there are kernels to go on with, and then nothing is waited
        for; else on the CPU.
        """
        if not has_kernels(logits.device):
            return TensorSausage.of(self.sausages(logits), torch.device("cpu"))
        found = TensorSausage.from_logits(logits, self.top_k)
        return TensorSausage(ids=found.ids, cost=found.cost.to(getattr(torch, self.logp_dtype)).float())


class PathDrafter:
    """The p best paths of the rescored lattice, merged by prefix; without models, of the heads alone."""

    drawn = 0

    def __init__(self, slots: Slots, rescorer: Rescorer | None = None, *, paths: int = 1):
        if not 1 <= paths <= 1024:
            raise ValueError(f"paths: expected 1..1024 drafts for each request, got {paths}")
        self.slots, self.rescorer, self.paths = slots, rescorer or Rescorer(), paths

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _PathSession:
        return _PathSession(self, self.slots.heads.open(len(prompts)))


class TreeDrafter:
    """The tree of the n most probable prefixes of the rescored lattice (DESIGN section 4).

    rescorer: of closed lattices, or a calibrated one, whose lattices may be open. nodes: n, or an `AutoWidth` that
    chooses it step by step.
    """

    drawn = 0

    def __init__(
        self, slots: Slots, rescorer: Rescorer | CalibratedRescorer | None = None, *, nodes: int | AutoWidth = 64
    ):
        if isinstance(nodes, int) and not 1 <= nodes <= 1024:
            raise ValueError(f"nodes: expected trees of 1..1024 nodes, got {nodes}")
        self.slots, self.rescorer, self.nodes = slots, rescorer or Rescorer(), nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        heads = self.slots.heads.open(len(prompts))
        search = open_search(self.rescorer, len(prompts))
        if isinstance(self.nodes, int):
            return _TreeSession(self.slots, heads, search, self.nodes)
        return _AutoSession(self.slots, heads, search, self.nodes, self.nodes.open(prompts, self.slots.heads.slots))


class _PathSession:
    def __init__(self, drafter: PathDrafter, heads: HeadsSession):
        self.drafter, self.heads = drafter, heads

    def propose(self, step: Step) -> list[Draft]:
        rescorer = self.drafter.rescorer
        tensors = self.drafter.slots.tensors(self.heads.logits(step))
        drafts = rescorer.paths(tensors, moved(step.histories, rescorer.context, tensors.device), self.drafter.paths)
        tokens, count = drafts.tokens.cpu().numpy(), drafts.count.tolist()
        return [Draft(tree=TokenTree.from_drafts(tokens[b, : count[b], :most])) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)


class _TreeSession:
    def __init__(self, slots: Slots, heads: HeadsSession, search: TreeSearch, nodes: int):
        self.slots, self.heads, self.search, self.nodes = slots, heads, search, nodes

    def propose(self, step: Step) -> list[Draft]:
        trees = self.search.trees(self.slots, self.heads.logits(step), step.histories, self.nodes)
        return [Draft(tree=no_deeper(trees[b], most)) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
        self.search.select(rows)


class _AutoSession:
    """Trees of the size that is worth most at each step."""

    def __init__(self, slots: Slots, heads: HeadsSession, search: TreeSearch, nodes: AutoWidth, width: WidthSession):
        self.slots, self.heads, self.search, self.nodes, self.width = slots, heads, search, nodes, width

    def propose(self, step: Step) -> list[Draft]:
        lengths = [len(history) for history in step.histories]
        # Heads that read along must see every step.
        if isinstance(self.heads, Memoryless) and self.width.rests(lengths):
            return [Draft(tree=EMPTY) for _ in lengths]
        began = time.perf_counter()
        trees = self.search.trees(self.slots, self.heads.logits(step), step.histories, self.nodes.most)
        usable = trees.depths <= np.array(step.room)[:, None]
        logq = np.where(usable, trees.logq, -np.inf)
        n = self.width.size(logq, lengths, time.perf_counter() - began)
        return [Draft(tree=no_deeper(trees[b].head(n), most)) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
        self.search.select(rows)
        self.width.select(rows)


def no_deeper(tree: TokenTree, most: int) -> TokenTree:
    """The nodes of depth `most` and less."""
    kept = tree.depths <= most
    if kept.all():
        return tree
    number = np.cumsum(kept, dtype=np.int32) - 1
    parents = np.where(tree.parents[kept] < 0, -1, number[tree.parents[kept]]).astype(np.int32)
    return TokenTree(tokens=tree.tokens[kept], parents=parents, depths=tree.depths[kept], logq=tree.logq[kept])
