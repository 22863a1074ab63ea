"""Lattices of heads, rescored by a small neural model: neural rescoring in the decode loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from rescore.decode.models.heads import Heads, HeadsSession, Step
from rescore.decode.neural import NeuralRescorer
from rescore.decode.shaping import Shaping
from rescore.lattice.sausage import PADDING, Sausage
from rescore.lattice.tree import TokenTree

from .draft import Draft
from .reader import Reader


class NeuralDrafter:
    """The `rescorer.paths` best drafts of the lattice of K candidates in each slot, merged to a tree; one is a chain."""

    drawn = False

    def __init__(self, heads: Heads, rescorer: NeuralRescorer, *, top_k: int = 16):
        self.heads = heads
        self.rescorer = rescorer
        self.top_k = top_k

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> NeuralSession:
        return NeuralSession(self.heads.open(len(prompts)), self.rescorer, self.rescorer.open(prompts, self.heads.slots), self.top_k)


class NeuralSession:
    """Heads and a small model at work on the requests of one call."""

    def __init__(self, heads: HeadsSession, rescorer: NeuralRescorer, reader: Reader, top_k: int):
        self.heads = heads
        self.rescorer = rescorer
        self.reader = reader
        self.top_k = top_k

    @torch.inference_mode()
    def propose(self, step: Step) -> list[Draft]:
        sausages = _within(Sausage.from_logits(self.heads.logits(step), self.top_k), step.room)
        drafts = self.rescorer.drafts(self.reader, sausages, step.histories)
        return [Draft(tree=TokenTree.from_drafts(tokens[:count])) for tokens, count in zip(drafts.tokens, drafts.count)]

    def select(self, rows: Sequence[int]) -> None:
        self.heads.select(rows)
        self.reader.select(rows)


def _within(sausages: Sausage, room: Sequence[int]) -> Sausage:
    """The first room[b] slots of each lattice."""
    beyond = np.arange(sausages.slots) >= np.array(room)[:, None]
    if not beyond.any():
        return sausages
    return Sausage(ids=np.where(beyond[..., None], np.int32(PADDING), sausages.ids), cost=np.where(beyond[..., None], np.float32(np.inf), sausages.cost))
