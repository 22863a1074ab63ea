"""What a report shows: all analyses of a dump. Each streams over the dump's blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rescore.decode.draft.registry import row_name
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.analyses.efficiency import (
    EfficiencyTable,
    Weights,
    compare_orders,
    oracle_efficiency,
    weights_by_task,
)
from rescore.decode.replay.analyses.lost_tokens import LostCounts, LostTokens
from rescore.decode.replay.analyses.recall import TaskRecall, recall
from rescore.decode.replay.analyses.reliability import Reliability, reliability
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.replay import DrafterReplay, Replay
from rescore.decode.replay.rows import Budgets, rows_of
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart
from rescore.lm.model.ngram import NGram

NODES = (8, 16, 32, 64, 128)
PATHS = (2, 4, 8, 16, 32)  # replayed beside 1 and p
BUDGET, LARGER = 16, 128  # nodes of the tree whose lost tokens are analysed, and of the tree it is compared with
OF_Q = 64  # nodes of the tree whose q is checked against acceptance
# For comparisons row by row.
EVERYWHERE = ("base", "parallel-base", "rescored", "parallel-rescored", "heads-tree", "tree")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """split    of the dump; part: name of its part to report on
    tasks    to report on; None for all
    seed     of the intervals
    tuned    weights to report on besides the default, their models if these are open, and their source as a phrase
    budgets  of the drafters
    models   path of each n-gram model, in the rescorer's order
    words    text of every id, or None
    settings   names and values to show, including the command line
    sequences  per task, and nodes of the tree, in the lattice browser
    bench    lines of `rescore bench decode`, None without
    """

    split: Split
    part: str = "heldout"
    tasks: tuple[str, ...] | None = None
    seed: int = 0
    tuned: Settings | None = None
    tuned_models: Sequence[NGram] | None = None
    source: str = "the default, not tuned"
    budgets: Budgets = field(default_factory=lambda: Budgets(nodes=NODES, paths=PATHS))
    models: Sequence[str] = ()
    words: Sequence[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sequences: int = 5
    nodes: int = 16
    bench: Path | None = None

    def tasks_of(self, dump: Dump) -> list[str]:
        return [name for name in dump.tasks if self.tasks is None or name in self.tasks]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Neural:
    """A small neural rescorer (`open_neural`, which alone needs PyTorch).

    name      of the model
    drafters  NEURAL and, with more than one path, NEURAL_BEAM; each runs once per block
    alpha     the model's weight
    paths     of the beam
    machine   that ran it
    """

    name: str
    drafters: Sequence[Replay]
    alpha: float
    paths: int
    machine: str

    @property
    def names(self) -> list[str]:
        return [name for drafter in self.drafters for name in drafter.names]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """The results that the sections show. What needs heads, or a language model (orders, weights), is empty or None
    without. q: of the drafter `q_of`.
    """

    dump: Dump
    options: ReportOptions
    drafters: Sequence[Replay]
    neural: Neural | None
    result: DumpResult
    figures: Figures
    q: Sequence[Reliability]
    q_of: str
    oracle: EfficiencyTable | None = None
    recall: Sequence[TaskRecall] = ()
    lost: Sequence[LostTokens] = ()
    orders: EfficiencyTable | None = None
    weights: Weights | None = None


def measure(
    dump: Dump,
    rescorer: Rescorer,
    options: ReportOptions,
    *,
    neural: Neural | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Measured:
    """Runs all analyses. advance: called with numbers of rows, about `rows_to_come` in total."""
    tasks, part, budgets = options.tasks_of(dump), options.split.part(options.part), options.budgets
    common: dict[str, Any] = {"tasks": tasks, "split": part, "advance": advance}
    drafters = rows_of(
        dump,
        rescorer,
        budgets,
        settings=options.tuned,
        tuned=options.tuned_models,
        counts=options.split.part("tune"),
        others=neural.drafters if neural else (),
        everywhere=EVERYWHERE,
    )
    stem = "tree" if len(rescorer.models) == 1 else "heads-tree"
    lost = LostCounts(
        draft=row_name(stem, BUDGET),
        larger=row_name(stem, LARGER),
        heads=row_name("heads-tree", BUDGET),
        oracle="oracle",
    )
    result = replay_dump(dump, drafters, listeners=[lost.add] if dump.slots else [], **common)
    found: dict[str, Any] = {}
    if dump.slots:
        found = {
            "oracle": oracle_efficiency(dump, **common),
            "recall": recall(dump, rescorer, top_k=budgets.top_k, **common),
            "lost": lost.result(),
        }
        if rescorer.models:
            found |= _of_models(dump, rescorer, options, common)
    q_of = next(
        (name for one in ("blend tuned", "blend") for name in [row_name(one, OF_Q)] if name in result.names), ""
    )
    q = next((one for one in drafters if isinstance(one, DrafterReplay) and q_of in one.names), None)
    return Measured(
        dump=dump,
        options=options,
        drafters=drafters,
        neural=neural,
        result=result,
        figures=Figures.of(result, seed=options.seed),
        q_of=q_of,
        q=reliability(dump, replace(q, budgets={q_of: OF_Q}), **common) if q else (),
        **found,
    )


def _of_models(
    dump: Dump,
    rescorer: Rescorer,
    options: ReportOptions,
    common: Mapping[str, Any],
) -> dict[str, Any]:
    first, *further = rescorer.models
    others = {f"{place}. {name}": model for place, (name, model) in enumerate(zip(options.models[1:], further), 2)}
    alpha = rescorer.alpha[0].tolist()
    of_search: dict[str, Any] = {"top_k": options.budgets.top_k, "threads": rescorer.threads}
    of_paths = {"alpha": alpha if len(alpha) > 1 else alpha[0], "paths": options.budgets.p, **of_search, **common}
    found: dict[str, Any] = {"orders": compare_orders(dump, first, others=others, **of_paths)}
    tasks, split = common["tasks"], options.split
    if any(split.tune[task] for task in tasks):
        how = {"tasks": tasks, "seed": options.seed, "advance": common["advance"], **of_search}
        found["weights"] = weights_by_task(dump, first, split, **how)
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
    stages = 4 + bool(rescorer.models) + slow
    return round(rows * stages + (whole if rescorer.models else 0))
