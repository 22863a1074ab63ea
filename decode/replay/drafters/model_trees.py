"""Trees of the language model alone, without any head: the control against which heads are to be measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.decode.rescoring.propose import propose_trees
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.ngram import NGram


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplay(Budgeted):
    """budgets: n of each name; one search, of the greatest, serves all."""

    model: NGram
    budgets: Mapping[str, int]
    threads: int = 1

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        histories = block.histories(slice(None), self.model.order - 1)
        began = time.perf_counter()
        trees = propose_trees(
            self.model, histories, slots=block.slots, n=max(self.budgets.values()), threads=self.threads
        )
        return worth_of_trees(trees, block.truth(), self.budgets, time.perf_counter() - began)
