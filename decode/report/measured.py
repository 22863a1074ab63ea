"""Runs all analyses of a report on a dump. Each streams over the dump's blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rescore.decode.draft.names import (
    BASE,
    BLEND,
    HEADS_TREE,
    LM_ALONE,
    ORACLE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PROMPT_LOOKUP,
    RECYCLING,
    RESCORED,
    SUFFIX_DECODING,
    TREE,
    TUNED_BLEND,
    sized,
)
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.analyses.acceptance import Acceptance, AcceptanceCounts
from rescore.decode.replay.analyses.along_text import AlongText, AlongTexts
from rescore.decode.replay.analyses.efficiency_table import EfficiencyTable
from rescore.decode.replay.analyses.entropies import Entropies, entropies
from rescore.decode.replay.analyses.lost_tokens import LostCounts, LostTokens
from rescore.decode.replay.analyses.models import compare_models, compare_orders
from rescore.decode.replay.analyses.oracle_efficiency import oracle_efficiency
from rescore.decode.replay.analyses.recall import TaskRecall, recall
from rescore.decode.replay.analyses.reliability import Reliability, reliability
from rescore.decode.replay.analyses.weights import Weights, best_draft, weights_by_task
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.decode.report.neural import Neural
from rescore.decode.report.timing import drafting_seconds
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart
from rescore.lm.ngram import NGram

NODES = (8, 16, 32, 64, 128)
BUDGET, LARGER = 16, 128  # nodes of the tree whose lost tokens are analysed, and of the tree it is compared with
OF_Q = 64  # nodes of the tree whose q is checked against acceptance
SLOTS = 16  # in the plot of acceptance by position, without heads
EVERYWHERE = (BASE, PARALLEL_BASE, RESCORED, PARALLEL_RESCORED, HEADS_TREE, TREE)  # for comparisons row by row
# Drafters in the plots of acceptance by position and of tokens per pass along the text.
SHOWN = (
    BASE,
    RESCORED,
    PARALLEL_RESCORED,
    sized(TREE, 16),
    sized(TREE, 64),
    sized(LM_ALONE, 16),
    *(sized(name, n) for name in (BLEND, TUNED_BLEND) for n in (16, 64)),
    sized(SUFFIX_DECODING, 16),
    sized(RECYCLING, 16),
    RECYCLING,
    PROMPT_LOOKUP,
    ORACLE,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The results that the sections show. What needs heads, or a language model (orders, several if there are several,
    weights), is empty or None without. drafting: seconds per lattice, by drafter; q: of the drafter `q_of`.
    """

    result: DumpResult
    figures: Figures
    acceptance: Sequence[Acceptance]
    along_text: Sequence[AlongText]
    q: Sequence[Reliability]
    q_of: str
    drafting: Mapping[str, float]
    entropies: Entropies | None = None
    oracle: EfficiencyTable | None = None
    recall: Sequence[TaskRecall] = ()
    lost: Sequence[LostTokens] = ()
    orders: EfficiencyTable | None = None
    several: EfficiencyTable | None = None
    weights: Weights | None = None


def measure(
    dump: Dump,
    rescorer: Rescorer,
    budgets: Budgets,
    split: Split,
    *,
    settings: Settings | None = None,
    tuned: Sequence[NGram] | None = None,
    part: SplitPart,
    tasks: Sequence[str],
    seed: int,
    names: Sequence[str] = (),
    neural: Neural | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Measured:
    """Runs all analyses on a part of a dump.

    settings  tuned weights, and their models if these are open
    names     of the models, used if there are several
    neural    a further rescorer
    advance   called with numbers of rows, about `rows_to_come` in total
    """
    common: dict[str, Any] = {"tasks": tasks, "split": part, "advance": advance}
    others = neural.drafters if neural else ()
    sources = RecordedSources(dump, rescorer, tuned=tuned, counts=split.part("tune"))
    drafters = rows_of(sources, budgets, settings=settings, others=others, everywhere=EVERYWHERE)
    acceptance, texts = AcceptanceCounts(dump.slots or SLOTS, SHOWN), AlongTexts(SHOWN)
    stem = TREE if rescorer.models else HEADS_TREE
    lost = LostCounts(
        draft=sized(stem, BUDGET), larger=sized(stem, LARGER), heads=sized(HEADS_TREE, BUDGET), oracle=ORACLE
    )
    listeners = [acceptance.add, texts.add, *([lost.add] if dump.slots else [])]
    result = replay_dump(dump, drafters, listeners=listeners, **common)
    found: dict[str, Any] = {}
    if dump.slots:
        found = {
            "drafting": drafting_seconds(dump, drafters, part, tasks),
            "entropies": entropies(dump, **common),
            "oracle": oracle_efficiency(dump, **common),
            "recall": recall(dump, rescorer, top_k=budgets.top_k, **common),
            "lost": lost.result(),
        }
        if rescorer.models:
            found |= _of_models(
                dump, rescorer, budgets, split, tasks=tasks, seed=seed, names=names, others=others, common=common
            )
    q_of = next((name for one in (TUNED_BLEND, BLEND) for name in [sized(one, OF_Q)] if name in result.names), "")
    q = next((one for one in drafters if isinstance(one, DrafterReplay) and q_of in one.names), None)
    return Measured(
        result=result,
        figures=Figures.of(result, seed=seed),
        acceptance=acceptance.result(),
        along_text=texts.result(),
        q_of=q_of,
        q=reliability(dump, replace(q, budgets={q_of: OF_Q}), **common) if q else (),
        **{"drafting": {}, **found},
    )


def _of_models(
    dump: Dump,
    rescorer: Rescorer,
    budgets: Budgets,
    split: Split,
    *,
    tasks: Sequence[str],
    seed: int,
    names: Sequence[str],
    others: Sequence[Replay],
    common: dict[str, Any],
) -> dict[str, Any]:
    first, alpha = rescorer.models[0], [row.tolist() if len(row) > 1 else float(row[0]) for row in rescorer.alpha]
    ways: dict[str, Any] = {"paths": budgets.p, "top_k": budgets.top_k, "threads": rescorer.threads, **common}
    found: dict[str, Any] = {"orders": compare_orders(dump, first, alpha=alpha[0], others=others, **ways)}
    if len(rescorer.models) > 1:
        models = {f"{place}. {name}": model for place, (name, model) in enumerate(zip(names, rescorer.models), 1)}
        found["several"] = compare_models(dump, models, alpha=alpha[0], **ways)
    if any(split.tune[task] for task in tasks):
        make = best_draft(first, top_k=budgets.top_k, threads=rescorer.threads)
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
    if not dump.slots:
        return round(2 * rows)
    stages = 5 + bool(rescorer.models) + (len(rescorer.models) > 1) + slow
    return round(rows * stages + (whole if rescorer.models else 0))
