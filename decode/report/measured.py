"""Runs all analyses of a report on a dump. Each streams over the dump's blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.analyses.acceptance import Acceptance, AcceptanceCounts
from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.analyses.entropies import Entropies, entropies
from rescore.decode.replay.analyses.lost_tokens import LostCounts, LostTokens
from rescore.decode.replay.analyses.models import compare_models, compare_orders
from rescore.decode.replay.analyses.oracle_efficiency import oracle_efficiency
from rescore.decode.replay.analyses.recall import TaskRecall, recall
from rescore.decode.replay.analyses.weights import Weights, best_draft, weights_by_task
from rescore.decode.replay.names import (
    BASE,
    HEADS_TREE,
    LM_ALONE,
    ORACLE,
    PARALLEL_RESCORED,
    RESCORED,
    TREE,
    sized,
)
from rescore.decode.replay.replay import Replay
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.decode.replay.standard import ReplayOptions
from rescore.decode.report.calibrations import TreeCalibrations
from rescore.decode.report.drafters import report_drafters
from rescore.decode.report.figures import Figures
from rescore.decode.report.neural import Neural
from rescore.decode.report.timing import drafting_seconds
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart

BUDGET, LARGER = 16, 128  # nodes of the tree whose lost tokens are analysed, and of the tree it is compared with
# Drafters in the plot of acceptance by position.
POSITIONS = (
    BASE,
    RESCORED,
    PARALLEL_RESCORED,
    sized(TREE, 16),
    sized(TREE, 64),
    sized(LM_ALONE, 16),
    ORACLE,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The results that the sections show. `drafting`: seconds per lattice, by drafter. orders, several and weights need
    a language model (`several` more than one), else they are None.
    """

    result: DumpResult
    figures: Figures
    entropies: Entropies
    oracle: EfficiencyTable
    recall: Sequence[TaskRecall]
    acceptance: Sequence[Acceptance]
    lost: Sequence[LostTokens]
    drafting: Mapping[str, float]
    orders: EfficiencyTable | None = None
    several: EfficiencyTable | None = None
    weights: Weights | None = None


def measure(
    dump: Dump,
    rescorer: Rescorer,
    options: ReplayOptions,
    split: Split,
    *,
    trees: TreeCalibrations,
    part: SplitPart,
    tasks: Sequence[str],
    seed: int,
    names: Sequence[str] = (),
    neural: Neural | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Measured:
    """Runs all analyses on a part of a dump.

    trees    calibrations of trees
    names    of the models, used if there are several
    neural   a further rescorer
    advance  called with numbers of rows, about `rows_to_come` in total
    """
    common: dict[str, Any] = {"tasks": tasks, "split": part, "advance": advance}
    k, others = options.top_k, neural.drafters if neural else ()
    drafters = report_drafters(dump, rescorer, options, split, trees, others)
    acceptance, stem = AcceptanceCounts(names=POSITIONS), TREE if rescorer.models else HEADS_TREE
    lost = LostCounts(
        draft=sized(stem, BUDGET), larger=sized(stem, LARGER), heads=sized(HEADS_TREE, BUDGET), oracle=ORACLE
    )
    result = replay_dump(dump, drafters, listeners=[acceptance.add, lost.add], **common)
    return Measured(
        result=result,
        figures=Figures.of(result, seed=seed),
        drafting=drafting_seconds(dump, drafters, part, tasks),
        entropies=entropies(dump, **common),
        oracle=oracle_efficiency(dump, **common),
        recall=recall(dump, rescorer, top_k=k, **common),
        acceptance=acceptance.result(),
        lost=lost.result(),
        **(
            _of_models(
                dump, rescorer, options, split, tasks=tasks, seed=seed, names=names, others=others, common=common
            )
            if rescorer.models
            else {}
        ),
    )


def _of_models(
    dump: Dump,
    rescorer: Rescorer,
    options: ReplayOptions,
    split: Split,
    *,
    tasks: Sequence[str],
    seed: int,
    names: Sequence[str],
    others: Sequence[Replay],
    common: dict[str, Any],
) -> dict[str, Any]:
    first, alpha = rescorer.models[0], [row.tolist() if len(row) > 1 else float(row[0]) for row in rescorer.alpha]
    ways: dict[str, Any] = {"paths": options.paths, "top_k": options.top_k, "threads": rescorer.threads, **common}
    found: dict[str, Any] = {"orders": compare_orders(dump, first, alpha=alpha[0], others=others, **ways)}
    if len(rescorer.models) > 1:
        models = {f"{place}. {name}": model for place, (name, model) in enumerate(zip(names, rescorer.models), 1)}
        found["several"] = compare_models(dump, models, alpha=alpha[0], **ways)
    if any(split.tune[task] for task in tasks):
        make = best_draft(first, top_k=options.top_k, threads=rescorer.threads)
        found["weights"] = weights_by_task(dump, make, split, tasks=tasks, seed=seed, advance=common["advance"])
    return found


def rows_to_come(dump: Dump, rescorer: Rescorer, part: SplitPart, tasks: Sequence[str], slow: int = 0) -> int:
    """About how many rows `measure` advances by: the part's rows for each analysis, and for each of the `slow` drafters
    that report progress.
    """
    rows = whole = 0.0
    for task in dump.header.tasks:
        if task.name in tasks:
            rows += task.rows * len(part.sequences(dump, task.name)) / task.sequences
            whole += task.rows
    stages = 4 + bool(rescorer.models) + (len(rescorer.models) > 1) + slow
    return round(rows * stages + (whole if rescorer.models else 0))
