"""No draft at all: plain autoregressive decoding, the baseline of every other drafter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.heads import Step
from rescore.decode.shaping import Shaping
from rescore.lattice.tree import TokenTree

from .draft import Draft

EMPTY = TokenTree.from_drafts(np.zeros((1, 0), np.int32))


class NoDraft:
    """An empty tree for every request, so that a pass yields one token."""

    drawn = False

    def open(self, prompts: Sequence[NDArray[np.int64]], shaping: Shaping) -> NoDraft:
        return self

    def propose(self, step: Step) -> list[Draft]:
        return [Draft(tree=EMPTY)] * len(step.histories)

    def select(self, rows: Sequence[int]) -> None:
        pass
