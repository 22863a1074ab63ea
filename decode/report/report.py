"""The report on a dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rescore.decode.cost.cost_model import Roofline
from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.draft.calibration import DEFAULT
from rescore.decode.draft.names import BASE, ORACLE, PROMPT_LOOKUP, split
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.draft.settings import Settings
from rescore.decode.replay.rows import Budgets
from rescore.decode.replay.run import DumpResult
from rescore.decode.report.browser import BrowserOptions, browser, lattice_section
from rescore.decode.report.content import Report, Section
from rescore.decode.report.measured import BUDGET, LARGER, NODES, Measured, measure
from rescore.decode.report.neural import Neural
from rescore.decode.report.sections import (
    acceptance,
    along_text,
    cost,
    differences,
    efficiency,
    entropies,
    lost,
    models,
    oracle,
    parallel,
    provenance,
    recall,
    reliability,
    repetition,
    summary,
    weights,
)
from rescore.decode.report.sections import neural as neural_section
from rescore.decode.report.sections import sources as of_sources
from rescore.decode.report.sections.parallel import PATHS
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.ngram import NGram

VERIFIED = 16  # tokens per pass
REFERENCES = (BASE, PROMPT_LOOKUP)  # the best drafter is compared with the first replayed
EXPLAINED = {BASE: ", the heads' own draft"}


def verdict(overall: dict[str, Any]) -> str:
    """Compares the best drafter with at most VERIFIED tokens per pass with the reference; means over tasks."""
    efficiency, verified = overall["block_efficiency"], overall["verified_per_pass"]
    within = [name for name in efficiency if name != ORACLE and round(verified[name]) <= VERIFIED]
    best = max(within, key=efficiency.__getitem__)
    reference = next(name for name in REFERENCES if name in efficiency)
    return (
        f"Best with {VERIFIED} verified tokens: {split(best)[0]}, {efficiency[best]:.2f} tokens per pass, "
        f"{_gain(efficiency[best] / efficiency[reference] - 1)} {reference} "
        f"({efficiency[reference]:.2f}{EXPLAINED.get(reference, '')})."
    )


def _gain(share: float) -> str:
    return "the same as" if round(100 * share) == 0 else f"{share:.0%} over"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """split    of the dump; part: name of its part to report on
    tasks    to report on; None for all
    seed     of the intervals
    tuned    weights to report on besides the default, their models if these are open, and their source as a phrase
    budgets  of the drafters
    browser  contents of the lattice browser
    cost     model and machine of the predicted cost; None for no such section
    """

    split: Split
    part: str = "heldout"
    tasks: tuple[str, ...] | None = None
    seed: int = 0
    tuned: Settings | None = None
    tuned_models: Sequence[NGram] | None = None
    source: str = "the default, not tuned"
    budgets: Budgets = field(default_factory=lambda: Budgets(nodes=NODES, paths=PATHS))
    browser: BrowserOptions = field(default_factory=BrowserOptions)
    cost: cost.CostOptions | None = None

    def tasks_of(self, dump: Dump) -> list[str]:
        return [name for name in dump.tasks if self.tasks is None or name in self.tasks]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSources:
    """Inputs that the page names.

    models    path of each n-gram model, in the rescorer's order
    words     text of every id, or None
    settings  names and values, including the command line
    """

    models: Sequence[str] = ()
    words: Sequence[str] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> str:
        """The models' file names, separated by commas."""
        return ", ".join(Path(path).name for path in self.models)


def report(
    dump: Dump,
    rescorer: Rescorer,
    options: ReportOptions,
    sources: ReportSources,
    *,
    neural: Neural | None = None,
    advance: Callable[[int], None] = lambda rows: None,
) -> Report:
    """The report on a dump.

    neural   a further rescorer (`open_neural`)
    advance  called with numbers of rows, about `rows_to_come` in total, for a progress bar
    """
    tasks, part = options.tasks_of(dump), options.split.part(options.part)
    measured = measure(
        dump,
        rescorer,
        options.budgets,
        options.split,
        settings=options.tuned,
        tuned=options.tuned_models,
        part=part,
        tasks=tasks,
        seed=options.seed,
        names=sources.models,
        neural=neural,
        advance=advance,
    )
    shown = None
    if dump.slots:
        trees = options.tuned and options.tuned.trees
        calibration = options.tuned.calibration("open") if options.tuned and trees else DEFAULT
        shown = browser(
            dump,
            rescorer,
            replace(options.browser, calibration=calibration),
            tasks=[task.task for task in measured.result.tasks],
            words=sources.words,
        )
    facts = [(path, model.info()) for path, model in zip(sources.models, rescorer.models)]
    tuned = {"tuned": options.source, "trees": options.tuned.to_json(Path.cwd())["trees"]} if options.tuned else {}
    return Report(
        title=f"Block drafts of {dump.header.model}" if dump.slots else f"Drafts for {dump.header.model}, no heads",
        subtitle=subtitle(dump, measured.result, options, sources),
        verdict=verdict(measured.figures.overall),
        figures=measured.figures.to_json(),
        tiles=efficiency.tiles(measured.figures.overall),
        sections=[
            *sections(dump, measured, shown, options, neural),
            provenance.section(dump, facts, {**sources.settings, **tuned}),
        ],
    )


def sections(
    dump: Dump, measured: Measured, shown: dict[str, Any] | None, options: ReportOptions, neural: Neural | None
) -> Iterator[Section]:
    figures, p = measured.figures, options.budgets.p
    yield summary.section(figures)
    yield efficiency.section(figures)
    if shown and shown["sequences"]:
        yield lattice_section(shown)
    if measured.q:
        yield of_sources.section(figures)
    yield differences.section(figures, lambda *pair: not of_sources.among_sources(*pair))
    if dump.slots:
        yield parallel.section(figures, p)
        yield lost.section(measured.lost, budget=BUDGET, larger=LARGER)
        yield recall.section(measured.recall)
    if measured.q:
        yield reliability.section(measured.q, measured.q_of)
    yield acceptance.section(measured.acceptance)
    yield along_text.section(measured.along_text)
    if measured.entropies and measured.oracle:
        yield repetition.section(figures)
        yield oracle.section(measured.oracle, options.seed)
        yield entropies.section(measured.entropies)
    if measured.orders:
        yield models.section(measured.orders, measured.several, options.seed)
    if neural:
        yield neural_section.section(neural, measured.result, measured.orders, options.seed)
    if measured.weights:
        yield weights.section(measured.weights, options.tuned, options.source)
    if options.cost:
        small = small_shape(options.cost, neural)
        yield cost.section(options.cost, cost.ways(figures, measured.drafting, dump.slots, p, small))


def small_shape(options: cost.CostOptions, neural: Neural | None) -> ModelShape | None:
    """The neural rescorer's shape if its passes can be predicted; measured passes cover only the target."""
    return neural.shape if neural and isinstance(options.clock, Roofline) else None


def subtitle(dump: Dump, result: DumpResult, options: ReportOptions, sources: ReportSources) -> str:
    models = f"with {sources.names}" if sources.models else "without an n-gram model"
    heads = f"{dump.header.heads} heads with {dump.header.top_k} candidates" if dump.slots else "no heads"
    return f"{texts_of(dump, result, options.part)}, {heads}, {models}"


def texts_of(dump: Dump, result: DumpResult, part: str) -> str:
    """The replayed text, as a phrase."""
    sampled = f" at temperature {dump.header.temperature:g}" if dump.header.temperature else ""
    of_part = {"heldout": "held-out ", "tune": "tuning "}.get(part, "")
    sequences = sum(len(task.tokens) for task in result.tasks)
    return (
        f"{dump.header.kind} text{sampled}, {len(result.tasks)} tasks, {sequences:,} {of_part}sequences of "
        f"{result.lattices:,} positions"
    )
