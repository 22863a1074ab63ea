"""The drafters of a report: those of `rescore run`, at more budgets, so that each family gives a curve."""

from __future__ import annotations

from collections.abc import Sequence

from rescore.decode.draft.dynamic_tree import dynamic_trees
from rescore.decode.draft.lattice_tree_drafter import Grow, LatticeTreeDrafter
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.static_tree import StaticTree
from rescore.decode.replay import rows
from rescore.decode.replay.names import (
    BASE,
    EAGLE_TREE,
    HEADS_TREE,
    LM_ALONE,
    MEDUSA_TREE,
    ORACLE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PUSHED_TREE,
    RESCORED,
    TREE,
    of_sizes,
    sized,
)
from rescore.decode.replay.oracle import OracleReplay
from rescore.decode.replay.recorded import RecordedHeads
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.decode.replay.standard import ReplayOptions, fitted
from rescore.decode.report.calibrations import TreeCalibrations
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import Split

PATHS = (1, 2, 4, 8, 16, 32)
NODES = (8, 16, 32, 64, 128)


def report_drafters(
    dump: Dump,
    rescorer: Rescorer,
    options: ReplayOptions,
    split: Split,
    trees: TreeCalibrations,
    others: Sequence[Replay] = (),
) -> list[Replay]:
    """All drafters of the report. `others`: further ones, such as a neural rescorer.

    ValueError if a model's vocabulary or tokenizer is not that of the dump.
    """
    rescorer = fitted(dump, rescorer)
    heads, k = Rescorer(threads=rescorer.threads), options.top_k
    drafters: list[Replay] = [rows.paths(heads, paths(BASE, PARALLEL_BASE, options.paths), top_k=k, everywhere=True)]
    if rescorer.models:
        budgets = paths(RESCORED, PARALLEL_RESCORED, options.paths)
        drafters.append(rows.paths(rescorer, budgets, top_k=k, everywhere=True))
    if static := static_tree(dump, split, k):
        drafters.append(shaped_trees(static.trees, MEDUSA_TREE, k))
    drafters.append(shaped_trees(dynamic_trees, EAGLE_TREE, k))
    drafters.append(rows.trees(heads, of_sizes(HEADS_TREE, NODES), top_k=k, everywhere=True))
    if rescorer.models:
        drafters.append(rows.trees(rescorer, of_sizes(TREE, NODES), top_k=k, everywhere=True))
        drafters.append(rows.trees(rescorer, of_sizes(PUSHED_TREE, NODES), top_k=k, pushed=True))
        drafters.append(rows.model_trees(rescorer.models[0], of_sizes(LM_ALONE, NODES), threads=rescorer.threads))
        for name, calibration in trees.rows():
            own = Rescorer(rescorer.models[0], calibration=calibration, threads=rescorer.threads)
            drafters.append(rows.trees(own, of_sizes(name, NODES), top_k=k))
    return [*drafters, *others, OracleReplay(widths={ORACLE: k})]


def shaped_trees(grow: Grow, name: str, top_k: int | None) -> DrafterReplay:
    """The trees that `grow` makes of the heads' lattices, of all sizes."""

    def make(block: DumpBlock) -> LatticeTreeDrafter:
        return LatticeTreeDrafter(RecordedHeads(block, top_k), grow, nodes=max(NODES))

    return DrafterReplay(budgets=of_sizes(name, NODES), make=make)


def static_tree(dump: Dump, split: Split, top_k: int | None) -> StaticTree | None:
    """Medusa's static tree, counted on the tuning part of all tasks; None if that is empty or has no true token."""
    tune = split.part("tune")
    if not any(split.tune.values()):
        return None
    try:
        return StaticTree.counted(
            (block for task in dump.tasks for block in tune.blocks(dump, task)), max(NODES), top_k=top_k
        )
    except ValueError:  # no true token is among the candidates
        return None


def paths(one: str, many: str, p: int) -> dict[str, int]:
    """Numbers of paths by drafter name: 1 and p have the names of `rescore run`, the others their number."""
    names = {1: one, p: many} if p > 1 else {1: one}
    return {names.get(budget, sized(many, budget)): budget for budget in sorted({*PATHS, p})}
