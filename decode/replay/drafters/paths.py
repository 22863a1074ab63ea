"""The p best paths of the heads' lattice, verified as a batch."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.worth import Worth, worth_of_drafts
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class PathReplay(Budgeted):
    """Replays the p best paths.

    budgets: p of each name; one search, with the largest, serves all. top_k: candidates per slot (None: all).
    """

    rescorer: Rescorer
    budgets: Mapping[str, int]
    top_k: int | None = None
    semantics: str = "failure"

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        sausages, histories = block.sausages(k=self.top_k), block.histories(slice(None), self.rescorer.context)
        began = time.perf_counter()
        drafts = self.rescorer.paths(sausages, histories, max(self.budgets.values()), semantics=self.semantics)
        return worth_of_drafts(drafts, block.truth(), self.budgets, time.perf_counter() - began)
