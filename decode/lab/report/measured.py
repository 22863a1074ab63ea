"""What a report shows: all analyses of a dump. Each streams over the dump's blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rescore.decode.draft.registry import row_name
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.lab.replay.analyses.efficiency import EfficiencyTable, Rows, model_rows, of_orders, oracle_rows
from rescore.decode.lab.replay.analyses.lost_tokens import LostCounts, LostTokens
from rescore.decode.lab.replay.analyses.recall import RecallCounts, TaskRecall
from rescore.decode.lab.replay.analyses.reliability import Reliability, ReliabilityCounts
from rescore.decode.lab.replay.figures import Figures
from rescore.decode.lab.replay.replay import DrafterReplay, Replay
from rescore.decode.lab.replay.rows import Budgets, rows_of
from rescore.decode.lab.replay.run import DumpResult, replay_dump
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split, SplitPart
from rescore.lm.model.ngram import NGram

NODES = (8, 16, 32, 64, 128)
PATHS = (2, 4, 8, 16, 32)  # replayed beside 1 and p
BUDGET, LARGER = 16, 128  # nodes of the tree whose lost tokens are analysed, and of the tree it is compared with
OF_Q = 64  # nodes of the tree whose q is checked against acceptance
EVERYWHERE = ("base", "rescored", "heads-tree", "tree", "oracle")  # for comparisons row by row


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
    """The results that the sections show. What needs heads, or a language model (orders), is empty or None without. q:
    of the drafter `q_of`.
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


def measure(
    dump: Dump,
    rescorer: Rescorer,
    options: ReportOptions,
    *,
    neural: Neural | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Measured:
    """Runs all analyses over one replay. advance: called with numbers of rows, about `rows_to_come` in total."""
    tasks, part, budgets = options.tasks_of(dump), options.split.part(options.part), options.budgets
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
    names = {name for drafter in drafters for name in drafter.names}
    q_of = next((name for one in ("blend tuned", "blend") if (name := row_name(one, OF_Q)) in names), "")
    q, lost, recalls = ReliabilityCounts(q_of), _lost_counts(rescorer), RecallCounts(rescorer, budgets.top_k)
    kept = [
        replace(one, keep=q_of) if isinstance(one, DrafterReplay) and q_of in one.names else one for one in drafters
    ]
    oracles, orders = (oracle_rows(dump), _order_rows(dump, rescorer, options)) if dump.slots else (({}, []), ({}, []))
    result = replay_dump(
        dump,
        [*kept, *oracles[1], *orders[1]],
        tasks=tasks,
        split=part,
        advance=advance,
        listeners=[*([q.add] if q_of else []), *([lost.add, recalls.add] if dump.slots else [])],
    )
    own = result.of(names)
    return Measured(
        dump=dump,
        options=options,
        drafters=drafters,
        neural=neural,
        result=own,
        figures=Figures.of(own, seed=options.seed),
        q_of=q_of,
        q=q.result(),
        oracle=EfficiencyTable(rows=oracles[0], result=result.of(oracles[0])) if oracles[0] else None,
        recall=recalls.result(),
        lost=lost.result(),
        orders=EfficiencyTable(rows=orders[0], result=result.of(orders[0])) if orders[0] else None,
    )


def _lost_counts(rescorer: Rescorer) -> LostCounts:
    stem = "tree" if len(rescorer.models) == 1 else "heads-tree"
    draft, larger = row_name(stem, BUDGET), row_name(stem, LARGER)
    return LostCounts(draft=draft, larger=larger, heads=row_name("heads-tree", BUDGET), oracle="oracle")


def _order_rows(dump: Dump, rescorer: Rescorer, options: ReportOptions) -> tuple[Rows, list[Replay]]:
    """The first model truncated to lower orders, and the others as they are; none without a model. A single model's own
    order is that of the rescored rows.
    """
    if not rescorer.models:
        return {}, []
    (first, *further), budgets, alpha = rescorer.models, options.budgets, rescorer.alpha[0].tolist()
    others = {f"{place}. {name}": model for place, (name, model) in enumerate(zip(options.models[1:], further), 2)}
    models: dict[str, NGram] = {**of_orders(first), **others}
    same: Rows = {}
    if not further and (whole := f"{first.order}-gram") in models:
        del models[whole]
        same = {name: {"model": whole, "p": p} for name, p in (("rescored", 1), ("parallel-rescored", budgets.p))}
    rows, drafters = model_rows(
        dump,
        models,
        alpha=alpha if len(alpha) > 1 else alpha[0],
        paths=budgets.p,
        top_k=budgets.top_k,
        threads=rescorer.threads,
    )
    return {**rows, **same}, drafters


def rows_to_come(dump: Dump, part: SplitPart, tasks: Sequence[str], slow: int = 0) -> int:
    """About how many rows `measure` advances by: the part's rows, and for each of the `slow` drafters that report
    progress.
    """
    rows = sum(
        task.rows * len(part.sequences(dump, task.name)) / task.sequences
        for task in dump.header.tasks
        if task.name in tasks
    )
    return round(rows * (1 + slow))
