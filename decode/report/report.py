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
from rescore.decode.report.sections import efficiency, lattices, provenance
from rescore.decode.run import mean_over_tasks, replay_dump
from rescore.lattice.dump import Dump

MEANS = ("block_efficiency", "headroom_recovered", "verified_per_pass", "accepted_per_verified")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """tasks that are shown (None: all), how drafts are made, what the browser shows, the seed of the intervals."""

    tasks: tuple[str, ...] | None = None
    replay: ReplayOptions = field(default_factory=ReplayOptions)
    browser: BrowserOptions = field(default_factory=BrowserOptions)


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
    result = replay_dump(dump, report_drafters(dump, rescorer, options.replay), tasks=tasks, advance=advance)
    measured = [task.to_json() for task in result.tasks]
    overall = {measure: mean_over_tasks(measured, measure) for measure in MEANS}
    shown = browser(dump, rescorer, options.browser, tasks=tasks, words=sources.words)
    facts = [(path, model.info()) for path, model in zip(sources.models, rescorer.models)]
    return Report(
        title=f"Block drafts of {dump.header.model}",
        subtitle=subtitle(dump, tasks, sources),
        tiles=efficiency.tiles(overall),
        sections=(
            efficiency.section(overall, measured),
            lattices.section(shown),
            provenance.section(dump, facts, sources.settings),
        ),
    )


def subtitle(dump: Dump, tasks: Sequence[str], sources: Sources) -> str:
    header = dump.header
    sampled = f" at temperature {header.temperature:g}" if header.temperature else ""
    models = f"rescored with {', '.join(sources.models)}" if sources.models else "without a language model"
    rows = sum(task.rows for task in header.tasks if task.name in tasks)
    return f"{header.kind} text{sampled}, {len(tasks)} tasks, {rows:,} positions, {header.heads} heads with {header.top_k} candidates, {models}"
