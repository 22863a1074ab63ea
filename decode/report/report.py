"""Everything that is measured on a dump, as a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rescore.decode.draft import Rescorer
from rescore.decode.replays.standard import ReplayOptions
from rescore.decode.report.browser import BrowserOptions, browser
from rescore.decode.report.content import Report
from rescore.decode.report.drafters import report_drafters
from rescore.decode.report.figures import Figures
from rescore.decode.report.sections import cost, differences, efficiency, lattices, provenance, repetition, summary
from rescore.decode.run import DumpResult, replay_dump
from rescore.decode.split import Part
from rescore.lattice.dump import Dump


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """tasks that are shown (None: all) and the part of them (None: all of it), how drafts are made, what the browser shows,
    the seed of the intervals, where drafts are costed (None: nowhere)."""

    tasks: tuple[str, ...] | None = None
    part: Part | None = None
    seed: int = 0
    replay: ReplayOptions = field(default_factory=ReplayOptions)
    browser: BrowserOptions = field(default_factory=BrowserOptions)
    cost: cost.CostOptions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What the page says about where its figures come from.

    models: path of each language model, in the rescorer's order; words: every id as text, or None; settings: names and
    values, the command line among them.
    """

    models: Sequence[str] = ()
    words: Sequence[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)


def report(dump: Dump, rescorer: Rescorer, options: ReportOptions, sources: Sources, *, advance: Callable[[int], None] = lambda rows: None) -> Report:
    """The report on a dump. advance: called with the number of rows done, for a progress bar of all rows of the tasks."""
    tasks = [name for name in dump.tasks if options.tasks is None or name in options.tasks]
    drafters = report_drafters(dump, rescorer, options.replay)
    result = replay_dump(dump, drafters, tasks=tasks, split=options.part, advance=advance)
    figures = Figures.of(result, seed=options.seed)
    shown = browser(dump, rescorer, options.browser, tasks=tasks, words=sources.words)
    ways = cost.ways(result, figures, dump.header.heads - 1, options.replay.paths)
    facts = [(path, model.info()) for path, model in zip(sources.models, rescorer.models)]
    return Report(
        title=f"Block drafts of {dump.header.model}",
        subtitle=subtitle(dump, result, options, sources),
        tiles=efficiency.tiles(figures.overall),
        sections=(
            summary.section(figures),
            efficiency.section(figures),
            differences.section(figures),
            lattices.section(shown),
            repetition.section(figures),
            *([cost.section(options.cost, ways)] if options.cost else []),
            provenance.section(dump, facts, sources.settings),
        ),
    )


def subtitle(dump: Dump, result: DumpResult, options: ReportOptions, sources: Sources) -> str:
    header = dump.header
    sampled = f" at temperature {header.temperature:g}" if header.temperature else ""
    models = f"rescored with {', '.join(sources.models)}" if sources.models else "without a language model"
    part = {"heldout": "held-out ", "tune": "tuning "}.get(options.part.name if options.part else "all", "")
    sequences = sum(len(task.tokens) for task in result.tasks)
    return (
        f"{header.kind} text{sampled}, {len(result.tasks)} tasks, {sequences:,} {part}sequences of {result.lattices:,} positions, "
        f"{header.heads} heads with {header.top_k} candidates, {models}"
    )
