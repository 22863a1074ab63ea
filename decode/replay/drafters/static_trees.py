"""One tree of ranks for all rows: Medusa's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.decode.rescoring.static_tree import StaticTree
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTreeReplay(Budgeted):
    """budgets: n of each name, the first n nodes of `tree`."""

    tree: StaticTree
    budgets: Mapping[str, int]
    top_k: int | None = None

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        return worth_of_trees(self.tree.trees(block.sausages(k=self.top_k)), block.truth(), self.budgets)
