"""Drafts one tree of ranks for every lattice: Medusa's, counted on texts, or BiTA's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.models.heads import DraftStep, HeadsSession
from rescore.decode.rescoring.static_tree import StaticTree
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping


class StaticTreeDrafter:
    """Fills the ranks of `tree` with candidates of the heads' lattice, without weights."""

    drawn = 0

    def __init__(self, lattice: HeadsLattice, tree: StaticTree):
        self.lattice, self.tree = lattice, tree

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _StaticTreeSession:
        return _StaticTreeSession(self, self.lattice.heads.open(len(prompts)))


class _StaticTreeSession:
    def __init__(self, drafter: StaticTreeDrafter, heads: HeadsSession):
        self.drafter, self.heads = drafter, heads

    def propose(self, step: DraftStep) -> list[Draft]:
        trees = self.drafter.tree.trees(self.drafter.lattice.sausages(self.heads.logits(step)))
        return [Draft(tree=trees[b].within(most)) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
