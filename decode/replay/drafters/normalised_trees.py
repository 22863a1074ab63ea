"""Trees of the n most probable prefixes under the q of the pushed lattice, which accounts for later slots."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.trees import Trees

ROWS = 256  # lattices composed at once


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalisedTreeReplay(Budgeted):
    """Replays trees of the normalised lattice.

    budgets: n of each name; one search, with the largest, serves all. top_k: candidates per slot (None: all).
    """

    rescorer: Rescorer
    budgets: Mapping[str, int]
    temperature: float = 1.0
    top_k: int | None = None

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        histories = block.histories(slice(None), self.rescorer.context)
        began = time.perf_counter()
        parts = [self._trees(block, slice(first, first + ROWS), histories) for first in range(0, block.rows, ROWS)]
        names = ("tokens", "parents", "depths", "logq", "count")
        trees = Trees(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
        return worth_of_trees(trees, block.truth(), self.budgets, time.perf_counter() - began)

    def _trees(self, block: DumpBlock, rows: slice, histories: np.ndarray) -> Trees:
        lattice = self.rescorer.normalise(
            block.sausages(rows, self.top_k), histories[rows], temperature=self.temperature
        )
        return lattice.trees(max(self.budgets.values()))
