"""Drafts the p best paths of the heads' lattice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.drafter import Rescoring
from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.drafters.tree_search import moved
from rescore.decode.models.heads import DraftStep, HeadsSession
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping
from rescore.lattice.tree import TokenTree


class PathDrafter(Rescoring):
    """Drafts the p best paths of the rescored lattice, merged by prefix; without models, those of the heads alone."""

    drawn = 0

    def __init__(self, lattice: HeadsLattice, rescorer: Rescorer | None = None, *, paths: int = 1):
        if not 1 <= paths <= 1024:
            raise ValueError(f"paths: expected 1..1024 drafts for each request, got {paths}")
        self.lattice, self.rescorer, self.paths = lattice, rescorer or Rescorer(), paths

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _PathSession:
        return _PathSession(self, self.lattice.heads.open(len(prompts)))


class _PathSession:
    def __init__(self, drafter: PathDrafter, heads: HeadsSession):
        self.drafter, self.heads = drafter, heads

    def propose(self, step: DraftStep) -> list[Draft]:
        rescorer = self.drafter.rescorer
        tensors = self.drafter.lattice.tensors(self.heads.logits(step))
        drafts = rescorer.paths(tensors, moved(step.histories, rescorer.context, tensors.device), self.drafter.paths)
        tokens, count = drafts.tokens.cpu().numpy(), drafts.count.tolist()
        return [Draft(tree=TokenTree.from_drafts(tokens[b, : count[b], :most])) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
