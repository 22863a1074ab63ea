"""Drafts the p best paths of the heads' lattice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Lattices, LatticeSession, Proposed, Rescoring
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.sources import DraftSources, Options
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.verify.shaping import Shaping


class PathDrafter(Rescoring):
    """Drafts the p best paths of the rescored lattice, merged by prefix; without models, those of the heads alone."""

    drawn = 0

    def __init__(self, lattice: Lattices, rescorer: Rescorer | None = None, *, paths: int = 1):
        if not 1 <= paths <= 1024:
            raise ValueError(f"paths: expected 1..1024 drafts for each request, got {paths}")
        self.lattice, self.rescorer, self.paths = lattice, rescorer or Rescorer(), paths

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> _PathSession:
        return _PathSession(self, self.lattice.open(len(prompts)))


class _PathSession:
    def __init__(self, drafter: PathDrafter, lattices: LatticeSession):
        self.drafter, self.lattices = drafter, lattices

    def propose(self, step: DraftStep) -> Proposed:
        rescorer = self.drafter.rescorer
        histories = step.contexts(rescorer.context)
        return rescorer.paths(self.lattices.sausages(step), histories, step.nodes or self.drafter.paths)

    def select(self, rows: Sequence[int]) -> None:
        self.lattices.select(rows)


def of_sources(sources: DraftSources, options: Options) -> PathDrafter:
    """The best path, or `paths` of them; without n-gram models among the options, of the heads alone."""
    rescorer = sources.rescorer(options, "paths") if "lm" in options else None
    return PathDrafter(sources.lattice(options), rescorer, paths=options.get("paths", 1))
