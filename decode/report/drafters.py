"""The drafters of a report: those of `rescore run`, at more budgets, so that each family gives a curve."""

from __future__ import annotations

from collections.abc import Sequence

from rescore.decode.replay.drafters.baseline_trees import DynamicTreeReplay, StaticTreeReplay
from rescore.decode.replay.drafters.calibrated import CalibratedReplay
from rescore.decode.replay.drafters.model_trees import ModelReplay
from rescore.decode.replay.drafters.names import (
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
from rescore.decode.replay.drafters.normalised_trees import NormalisedTreeReplay
from rescore.decode.replay.drafters.oracle_paths import OracleReplay
from rescore.decode.replay.drafters.paths import PathReplay
from rescore.decode.replay.drafters.standard import ReplayOptions, fitted
from rescore.decode.replay.drafters.trees import TreeReplay
from rescore.decode.replay.split import Split
from rescore.decode.replay.worth import ReplayDrafter
from rescore.decode.report.calibrations import TreeCalibrations
from rescore.decode.rescoring.calibrated import CalibratedTrees
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.rescoring.static_tree import StaticTree
from rescore.lattice.dump import Dump

PATHS = (1, 2, 4, 8, 16, 32)
NODES = (8, 16, 32, 64, 128)


def report_drafters(
    dump: Dump,
    rescorer: Rescorer,
    options: ReplayOptions,
    split: Split,
    trees: TreeCalibrations,
    others: Sequence[ReplayDrafter] = (),
) -> list[ReplayDrafter]:
    """All drafters of the report. `others`: further ones, such as a neural rescorer.

    ValueError if a model's vocabulary or tokenizer is not that of the dump.
    """
    rescorer = fitted(dump, rescorer)
    heads, k = Rescorer(threads=rescorer.threads), options.top_k
    drafters: list[ReplayDrafter] = [
        PathReplay(rescorer=heads, budgets=paths(BASE, PARALLEL_BASE, options.paths), top_k=k)
    ]
    if rescorer.models:
        budgets = paths(RESCORED, PARALLEL_RESCORED, options.paths)
        drafters.append(PathReplay(rescorer=rescorer, budgets=budgets, top_k=k, semantics=options.semantics))
    if static := static_tree(dump, split, k):
        drafters.append(StaticTreeReplay(tree=static, budgets=of_sizes(MEDUSA_TREE, NODES), top_k=k))
    drafters.append(DynamicTreeReplay(budgets=of_sizes(EAGLE_TREE, NODES), top_k=k))
    drafters.append(TreeReplay(rescorer=heads, budgets=of_sizes(HEADS_TREE, NODES), top_k=k))
    if rescorer.models:
        drafters.append(TreeReplay(rescorer=rescorer, budgets=of_sizes(TREE, NODES), top_k=k))
        drafters.append(NormalisedTreeReplay(rescorer=rescorer, budgets=of_sizes(PUSHED_TREE, NODES), top_k=k))
        drafters.append(
            ModelReplay(model=rescorer.models[0], budgets=of_sizes(LM_ALONE, NODES), threads=rescorer.threads)
        )
        for name, calibration in trees.rows():
            calibrated = CalibratedTrees(rescorer.models[0], calibration, threads=rescorer.threads)
            drafters.append(CalibratedReplay(rescorer=calibrated, budgets=of_sizes(name, NODES), top_k=k))
    return [*drafters, *others, OracleReplay(widths={ORACLE: k})]


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
