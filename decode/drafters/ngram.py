"""Drafts of an n-gram model alone, without any head: the control against which heads are to be measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft import propose_trees
from rescore.decode.models.heads import Step
from rescore.decode.shaping import Shaping
from rescore.lm.ngram import NGram

from .draft import Draft
from .none import EMPTY


class NGramDrafter:
    """The tree of the n most probable continuations of at most `slots` tokens under an n-gram model."""

    drawn = False

    def __init__(self, model: NGram, *, slots: int, n: int, threads: int = 1):
        for name, value in (("slots", slots), ("n", n)):
            if value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        self.model = model
        self.slots = slots
        self.n = n
        self.threads = threads

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> NGramDrafter:
        return self

    def propose(self, step: Step) -> list[Draft]:
        histories = self._contexts(step.histories)
        depths = np.minimum(step.room, self.slots)
        drafts = [Draft(tree=EMPTY)] * len(depths)
        # The best tree of little room is not a part of the best deep one.
        for depth in np.unique(depths[depths > 0]).tolist():
            rows = np.flatnonzero(depths == depth)
            trees = propose_trees(self.model, histories[rows], slots=depth, n=self.n, threads=self.threads)
            for i, row in enumerate(rows.tolist()):
                drafts[row] = Draft(tree=trees[i])
        return drafts

    def select(self, rows: Sequence[int]) -> None:
        pass

    def _contexts(self, histories: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
        """The last N - 1 tokens of each, int32 [B, N - 1], padding -1 in front."""
        width = self.model.order - 1
        contexts = np.full((len(histories), width), -1, np.int32)
        for row, history in zip(contexts, histories):
            known = history[len(history) - min(len(history), width) :]
            row[width - len(known) :] = known
        return contexts
