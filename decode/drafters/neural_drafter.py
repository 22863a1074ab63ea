"""Lattices of heads, rescored by a small neural model in the decode loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.drafters.heads_lattice import HeadsLattice
from rescore.decode.models.heads import DraftStep, HeadsSession
from rescore.decode.models.reader import Reader
from rescore.decode.rescoring.neural_rescorer import NeuralRescorer
from rescore.decode.verify.draft import Draft
from rescore.decode.verify.shaping import Shaping


class NeuralDrafter:
    """Drafts the tree of all prefixes in the rescorer's beam over the heads' lattice; a chain for one path."""

    drawn = 0

    def __init__(self, lattice: HeadsLattice, rescorer: NeuralRescorer):
        self.lattice, self.rescorer = lattice, rescorer

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> NeuralSession:
        heads = self.lattice.heads
        return NeuralSession(self, heads.open(len(prompts)), self.rescorer.open(prompts, heads.slots))


class NeuralSession:
    """Heads and a small model, opened for the requests of one call."""

    def __init__(self, drafter: NeuralDrafter, heads: HeadsSession, reader: Reader):
        self.drafter = drafter
        self.heads = heads
        self.reader = reader

    def propose(self, step: DraftStep) -> list[Draft]:
        sausages = self.drafter.lattice.sausages(self.heads.logits(step))
        trees = self.drafter.rescorer.trees(self.reader, sausages, step.histories)
        return [Draft(tree=trees[b].within(most)) for b, most in enumerate(step.room)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
        self.reader.select(rows)
