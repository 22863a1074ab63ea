"""Drafts of the best tree of the heads' lattice."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.drafter import EMPTY, DrafterSession
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_search import TreeSearch, open_search
from rescore.decode.drafters.width import AutoWidth, WidthSession
from rescore.decode.models.heads import DraftStep, HeadsSession, Memoryless
from rescore.decode.rescoring.calibrated import CalibratedRescorer
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping


class TreeDrafter:
    """The tree of the n most probable prefixes of the rescored lattice (docs/concepts.md, token trees).

    rescorer: of closed lattices, or a calibrated one, whose lattices may be open. nodes: n, or an `AutoWidth` that
    chooses it step by step.
    """

    drawn = 0

    def __init__(
        self,
        lattice: HeadsLattice,
        rescorer: Rescorer | CalibratedRescorer | None = None,
        *,
        nodes: int | AutoWidth = 64,
    ):
        if isinstance(nodes, int) and not 1 <= nodes <= 1024:
            raise ValueError(f"nodes: expected trees of 1..1024 nodes, got {nodes}")
        self.lattice, self.rescorer, self.nodes = lattice, rescorer or Rescorer(), nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> DrafterSession:
        heads = self.lattice.heads.open(len(prompts))
        search = open_search(self.rescorer, len(prompts))
        if isinstance(self.nodes, int):
            return _TreeSession(self.lattice, heads, search, self.nodes)
        return _AutoSession(self.lattice, heads, search, self.nodes, self.nodes.open(prompts, self.lattice.heads.slots))


class _TreeSession:
    def __init__(self, lattice: HeadsLattice, heads: HeadsSession, search: TreeSearch, nodes: int):
        self.lattice, self.heads, self.search, self.nodes = lattice, heads, search, nodes

    def propose(self, step: DraftStep) -> list[Draft]:
        trees = self.search.trees(self.lattice, self.heads.logits(step), step.histories, self.nodes)
        return [Draft(tree=trees[b].within(most)) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
        self.search.select(rows)


class _AutoSession:
    """Trees of the size that is worth most at each step."""

    def __init__(
        self, lattice: HeadsLattice, heads: HeadsSession, search: TreeSearch, nodes: AutoWidth, width: WidthSession
    ):
        self.lattice, self.heads, self.search, self.nodes, self.width = lattice, heads, search, nodes, width

    def propose(self, step: DraftStep) -> list[Draft]:
        lengths = [len(history) for history in step.histories]
        # Heads that read along must see every step.
        if isinstance(self.heads, Memoryless) and self.width.rests(lengths):
            return [Draft(tree=EMPTY) for _ in lengths]
        began = time.perf_counter()
        trees = self.search.trees(self.lattice, self.heads.logits(step), step.histories, self.nodes.most)
        usable = trees.depths <= np.array(step.room)[:, None]
        logq = np.where(usable, trees.logq, -np.inf)
        n = self.width.size(logq, lengths, time.perf_counter() - began)
        return [Draft(tree=trees[b].head(n).within(most)) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
        self.search.select(rows)
        self.width.select(rows)
