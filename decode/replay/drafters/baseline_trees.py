"""Baseline trees: one static tree of candidate ranks (Medusa), and trees grown layer by layer (EAGLE-2)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from rescore.decode.replay.drafters.budgeted import Budgeted
from rescore.decode.replay.worth import Worth, worth_of_trees
from rescore.decode.rescoring.dynamic_tree import WIDTH, dynamic_trees
from rescore.decode.rescoring.static_tree import StaticTree
from rescore.lattice.dump_block import DumpBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTreeReplay(Budgeted):
    """Replays a static tree. budgets: n of each name, the first n nodes of `tree`."""

    tree: StaticTree
    budgets: Mapping[str, int]
    top_k: int | None = None

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        return worth_of_trees(self.tree.trees(block.sausages(k=self.top_k)), block.truth(), self.budgets)


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicTreeReplay(Budgeted):
    """Replays EAGLE-2's trees. budgets: n of each name; one search, with the largest, serves all. width: see
    `dynamic_trees`.
    """

    budgets: Mapping[str, int]
    width: int = WIDTH
    top_k: int | None = None

    def worth(self, block: DumpBlock) -> dict[str, Worth]:
        sausages = block.sausages(k=self.top_k)
        began = time.perf_counter()
        trees = dynamic_trees(sausages, max(self.budgets.values()), width=self.width)
        return worth_of_trees(trees, block.truth(), self.budgets, time.perf_counter() - began)
