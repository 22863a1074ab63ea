"""Trees of the n most probable prefixes of the heads' lattice."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReplay(Budgeted):
    """Replays trees of the heads' lattice.

    budgets: n of each name; one search, with the largest, serves all. top_k: candidates per slot (None: all).
    """

    rescorer: Rescorer
    budgets: Mapping[str, int]
    top_k: int | None = None

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        sausages, histories = block.sausages(k=self.top_k), block.histories(slice(None), self.rescorer.context)
        began = time.perf_counter()
        trees = self.rescorer.trees(sausages, histories, max(self.budgets.values()))
        return worth_of_trees(trees, block.truth(), self.budgets, time.perf_counter() - began)
