"""Drafts trees that follow from the heads' candidates alone: Medusa's and BiTA's trees of ranks, EAGLE-2's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Lattices, LatticeSession, Proposed
from rescore.decode.draft.dynamic_tree import dynamic_trees
from rescore.decode.draft.sources import DraftSources, Options, fixed_size
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.sausage import Sausage
from rescore.lattice.trees import Trees

Grow = Callable[[Sausage, int], Trees]
"""Maps lattices [B, T, K] and n to trees of at most n nodes: `StaticTree.trees`, `dynamic_trees`."""


class LatticeTreeDrafter:
    """Drafts the trees that `grow` makes of the heads' lattices, of at most `nodes` nodes."""

    drawn = 0

    def __init__(self, lattice: Lattices, grow: Grow, *, nodes: int):
        self.lattice, self.grow, self.nodes = lattice, grow, nodes

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _LatticeTreeSession:
        return _LatticeTreeSession(self, self.lattice.open(len(prompts)))


class _LatticeTreeSession:
    def __init__(self, drafter: LatticeTreeDrafter, lattices: LatticeSession):
        self.drafter, self.lattices = drafter, lattices

    def propose(self, step: DraftStep) -> Proposed:
        return self.drafter.grow(self.lattices.sausages(step), step.nodes or self.drafter.nodes)

    def select(self, rows: Sequence[int]) -> None:
        self.lattices.select(rows)


def of_sources(sources: DraftSources, options: Options) -> LatticeTreeDrafter:
    """EAGLE-2's trees; with `counts` among the options, Medusa's."""
    lattice, nodes = sources.lattice(options), fixed_size(options["nodes"])
    grow = sources.counted(options["counts"], nodes, options["top_k"]).trees if "counts" in options else dynamic_trees
    return LatticeTreeDrafter(lattice, grow, nodes=nodes)
