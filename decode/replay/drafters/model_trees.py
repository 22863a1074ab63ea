"""Trees of the language model alone, without heads: the control for heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.drafters.visits import worth_of_visits
from rescore.decode.replay.worth import Worth
from rescore.decode.rescoring.propose import propose_trees
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.trees import Trees
from rescore.lm.ngram import NGram


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplay(Budgeted):
    """Replays trees proposed by an n-gram model. budgets: n of each name."""

    model: NGram
    budgets: Mapping[str, int]
    threads: int = 1

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        histories = block.histories(slice(None), self.model.order - 1)

        def search(_: NDArray[np.int64], rows: NDArray[np.int64], n: int) -> Trees:
            return propose_trees(self.model, histories[rows], n=n, depth=block.slots, threads=self.threads)

        return worth_of_visits(block, block.truth(), self.budgets, search)
