"""Rows of a replay's table: trees and paths of a rescorer, at the budgets of their names."""

from __future__ import annotations

from collections.abc import Mapping

from rescore.decode.draft.ngram_drafter import NGramDrafter
from rescore.decode.draft.path_drafter import PathDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.tree_drafter import TreeDrafter
from rescore.decode.replay.recorded import RecordedHeads
from rescore.decode.replay.replay import DrafterReplay
from rescore.lattice.dump_block import DumpBlock
from rescore.lm.ngram import NGram


def paths(
    rescorer: Rescorer, budgets: Mapping[str, int], *, top_k: int | None = None, everywhere: bool = False
) -> DrafterReplay:
    """The p best paths of the heads' first `top_k` candidates (None: all); p of each name. everywhere: as in
    `DrafterReplay`.
    """

    def make(block: DumpBlock) -> PathDrafter:
        return PathDrafter(RecordedHeads(block, top_k), rescorer, paths=max(budgets.values()))

    return DrafterReplay(budgets=budgets, make=make, everywhere=everywhere)


def trees(
    rescorer: Rescorer | Mapping[str, Rescorer],
    budgets: Mapping[str, int],
    *,
    top_k: int | None = None,
    heads: bool = True,
    pushed: bool = False,
    everywhere: bool = False,
) -> DrafterReplay:
    """The trees of a rescorer, or of one for each task; n of each name. heads: whether it has the heads' lattices, if
    the dump has any; pushed: as in `TreeDrafter`.
    """

    def make(block: DumpBlock) -> TreeDrafter:
        lattice = RecordedHeads(block, top_k) if heads and block.slots else None
        own = rescorer if isinstance(rescorer, Rescorer) else rescorer[block.task]
        return TreeDrafter(lattice, own, nodes=max(budgets.values()), pushed=pushed)

    return DrafterReplay(budgets=budgets, make=make, everywhere=everywhere)


def model_trees(model: NGram, budgets: Mapping[str, int], *, threads: int = 1) -> DrafterReplay:
    """Trees of an n-gram model alone, as deep as the heads' lattices; n of each name."""

    def make(block: DumpBlock) -> NGramDrafter:
        return NGramDrafter(model, slots=block.slots, nodes=max(budgets.values()), threads=threads)

    return DrafterReplay(budgets=budgets, make=make)
