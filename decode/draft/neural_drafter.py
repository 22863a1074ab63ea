"""Lattices of heads, rescored by a small neural model in the decode loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.drafter import Lattices, LatticeSession, Proposed
from rescore.decode.draft.neural_rescorer import NeuralRescorer
from rescore.decode.draft.sources import DraftSources, Options
from rescore.decode.models.draft_step import DraftStep
from rescore.decode.models.reader import Reader
from rescore.decode.verify.shaping import Shaping


class NeuralDrafter:
    """Drafts the tree of all prefixes in the rescorer's beam over the heads' lattice; a chain for one path."""

    drawn = 0

    def __init__(self, lattice: Lattices, rescorer: NeuralRescorer):
        self.lattice, self.rescorer = lattice, rescorer

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> NeuralSession:
        return NeuralSession(
            self.rescorer, self.lattice.open(len(prompts)), self.rescorer.open(prompts, self.lattice.slots)
        )


class NeuralSession:
    """Lattices and a small model, opened for the requests of one call."""

    def __init__(self, rescorer: NeuralRescorer, lattices: LatticeSession, reader: Reader):
        self.rescorer, self.lattices, self.reader = rescorer, lattices, reader

    def propose(self, step: DraftStep) -> Proposed:
        return self.rescorer.trees(self.reader, self.lattices.sausages(step), step.histories)

    def select(self, rows: Sequence[int]) -> None:
        self.lattices.select(rows)
        self.reader.select(rows)


def of_sources(sources: DraftSources, options: Options) -> NeuralDrafter:
    small, lattice = sources.small(options["neural"], "--neural"), sources.lattice(options)
    weights = sources.alpha(options["alpha"])
    alpha = weights if len(weights) > 1 else weights[0]
    rescorer = NeuralRescorer(small, vocab_size=sources.vocab_size, alpha=alpha, paths=options["paths"])
    return NeuralDrafter(lattice, rescorer)
