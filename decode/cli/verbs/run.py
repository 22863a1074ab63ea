"""`rescore run`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import values
from rescore.decode.cli.groups import ALLOW_INEXACT, LINES, MEMORY, TUNE_SEQUENCES, RescoringArgs, TaskArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, argument, flag, option, value_errors_of
from rescore.decode.cli.output import Column, Part, Result, TextTable, column, ends, half_width
from rescore.decode.draft.registry import row_name, split, uses_heads_alone
from rescore.lattice.atomic import atomic_file

if TYPE_CHECKING:
    from rescore.decode.draft.settings import Settings
    from rescore.decode.draft.text_memory import TextMemory
    from rescore.decode.lab.replay.rows import Budgets
    from rescore.decode.lab.replay.run import DumpResult
    from rescore.decode.lab.replay.table import Lines, RecordWriter
    from rescore.lattice.dump import Dump
    from rescore.lattice.dump_block import DumpBlock
    from rescore.lattice.split import SplitPart


LARGEST = 128  # nodes
TIMED = {"paths": "parallel-rescored", "tree": row_name("tree", LARGEST), "blend": row_name("blend", LARGEST)}
BOLD = ("tree", "tree tuned", "blend", "blend tuned")
# Facts of each task, below its block efficiencies: of any dump, and of heads with an n-gram model.
FACTS: dict[str, Callable[[Report], str]] = {
    "sequences": lambda task: f"{task['sequences']:,}",
    "tokens": lambda task: f"{task['tokens']:,}",
    "loops": lambda task: f"{task['loop_share']:.0%}",
}


@dataclass(frozen=True, kw_only=True)
class RunArgs(TaskArgs, RescoringArgs, ReportedArgs):
    r"""Replay dumps with every drafter and print the block efficiency of the main ones,
    generated tokens per target pass; with --all, of every drafter on every task.

    rows     the drafters of `rescore generate`, each with its number of nodes, as
             far as the dump has what they need: heads, an n-gram model (--lm).
             Published ones that need no heads are replayed where there are none
             base, parallel-base     the best path of the heads' lattice; the p best
             heads-tree N, tree N    its N most probable prefixes, without and with
                                     the n-gram model
             blend N                 under one q of all sources; blend-without-heads
                                     and blend-without-lm lack one: controls
             oracle                  the best that any choice of candidates reaches
             "tuned": with the weights of --settings; "with memory": with --memory
             as a further source.
             On the dump that was tuned on, only the held-out part is replayed.
    columns  verified           draft tokens verified per target pass
             one per task       block efficiency
             mean               over the tasks
             ±                  half of its 95% interval (bootstrap over sequences)
             headroom           (B - B_base) / (B_oracle - B_base), mean over tasks,
                                of drafts of the heads' candidates: the oracle is
                                the best of these. Blends also draft other tokens
    below    loops              sequences with fewer than 8 distinct tokens in
                                their last 24
             repeats            share of neighbouring draft tokens that are equal
             max run            mean length of the longest run in a draft
             wins, ties, losses steps at which the rescored draft is accepted
                                further than the base draft, equally far, less far
             differences        of drafters at equal nodes, on the same sequences;
                                p-values are two-sided

    examples:
      rescore run data/demo/sampled --lm data/demo/demo.ngram
      rescore run data/demo/sampled --lm data/demo/demo.ngram --all
      rescore run data/demo/sampled --lm data/demo/demo.ngram -o passes.parquet
      rescore run data/demo/greedy data/demo/sampled --lm data/demo/demo.ngram \
          --json run.json
      rescore run DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 --alpha 0.5 \
          --paths 8 --drafts drafts.parquet
      rescore run DUMP --settings settings.json
      rescore run DUMP --lm LM --alpha 0.6,0.5,0.5,0.4,0.4,0.3,0.3,0.2 --json -
    """

    dumps: Sequence[Path] = argument("DUMP", "a dump's folder (docs/reference/dump-format.md)", Path, several=True)
    allow_inexact: bool = ALLOW_INEXACT
    settings: Path | None = option(
        "FILE", "written by `rescore tune`: also replay its tuned drafters, with its models unless --lm is given", Path
    )
    memory: Path | None = MEMORY
    part: str | None = option(
        None,
        "sequences of each task to replay: the first ones, which settings are tuned on, the rest, or all "
        "(default: all; with --settings of this dump: heldout)",
        choices=("tune", "heldout", "all"),
    )
    tune_sequences: int | None = TUNE_SEQUENCES
    seed: int = option(None, "seed of the bootstrap", values.seed, default=0, rare=True)
    drafts: Path | None = option(
        "FILE",
        "write the p best paths, their costs and accepted lengths, of every step (.parquet or .jsonl)",
        LINES,
        rare=True,
    )
    all: bool = flag("print every drafter, task and difference, not the main drafters' means")
    out: Path | None = option(
        "FILE",
        "write a line for each pass of every drafter, for DuckDB, Polars and the like (.parquet or .jsonl)",
        LINES,
        short="-o",
    )


def run(args: RunArgs) -> Result:
    report = replayed(args)
    if args.all:
        return Result(report, tables(report))
    return Result(report, [*summary(report), "--all: every drafter, task and difference"])


def replayed(args: RunArgs) -> Report:
    """Replays the dumps and writes their passes and drafts."""
    from rescore.decode.cli import models, screen
    from rescore.decode.lab.replay.rows import Budgets, rows_of
    from rescore.decode.lab.replay.run import replay_dump
    from rescore.decode.lab.replay.table import DRAFTS, PASSES, RecordWriter, write_passes

    with ExitStack() as stack:
        passes, drafts = (
            stack.enter_context(RecordWriter(stack.enter_context(atomic_file(path)), path.suffix, fields))
            if path
            else None
            for path, fields in ((args.out, PASSES), (args.drafts, DRAFTS))
        )
        dumps = models.open_dumps(args.dumps, allow_inexact=args.allow_inexact, tasks=args.task, top_k=args.top_k)
        settings, args = models.open_settings(args.settings, args)
        rescorer = models.open_rescorer(args, dumps)
        memory = open_memory(args.memory, dumps[0])
        parts = parts_of(dumps, args, settings)
        budgets = Budgets(p=args.paths, top_k=args.top_k)
        results = []
        bar = stack.enter_context(screen.progress_bar())
        for dump, part in zip(dumps, parts):
            rows = sum(task.rows for task in dump.header.tasks if not args.task or task.name in args.task)
            progress = bar.add_task(str(dump.path), total=rows)
            listeners = [partial(write_passes, passes, dump)] if passes else []
            listeners += [partial(write_paths, drafts, dump)] if drafts else []
            with value_errors_of(dump.path):
                counts = part.split.part("tune") if part and part.name == "heldout" else None
                drafters = rows_of(
                    dump,
                    rescorer,
                    budgets,
                    settings=settings,
                    memory=memory,
                    counts=counts,
                    everywhere=("base", "rescored"),
                )
                results.append(
                    replay_dump(
                        dump,
                        drafters,
                        tasks=args.task or None,
                        split=part,
                        advance=partial(bar.advance, progress),
                        listeners=listeners,
                    )
                )
    return to_json(args, budgets, dumps, parts, results)


def open_memory(path: Path | None, dump: Dump) -> TextMemory | None:
    from rescore.decode.draft.text_memory import TextMemory

    if path is None:
        return None
    header = dump.header
    if header.end_of_text is None:
        raise Misuse(f"--memory: {dump.path} has no end-of-text id")
    return TextMemory.open(path, vocab_size=header.vocab_size, end_of_text=header.end_of_text, frozen=True)


def write_paths(writer: RecordWriter, dump: Dump, block: DumpBlock, lines: Mapping[str, Lines]) -> None:
    """Writes the p best paths of every row they visit."""
    from rescore.decode.lab.replay.table import write_drafts

    own = next((lines[name] for name in ("parallel-rescored", "parallel-base") if name in lines), None)
    if own is None:
        raise Misuse(f"--drafts: {dump.path} is of a model without heads, and so without paths to write")
    write_drafts(writer, dump, block, own)


def parts_of(dumps: Sequence[Dump], args: RunArgs, settings: Settings | None) -> list[SplitPart | None]:
    """The part of each dump to replay, None for all of it. The default for the dump that settings were tuned on is its
    held-out part.
    """
    from rescore.decode.cli import models

    parts = []
    for dump in dumps:
        tuned, split = models.split_of(args.tune_sequences, dump, settings)
        name = args.part or ("heldout" if tuned else "all")
        if args.tune_sequences is not None and name == "all":
            raise Misuse("--tune-sequences needs --part tune or --part heldout")
        parts.append(None if name == "all" else split.part(name))
    return parts


def to_json(
    args: RunArgs,
    budgets: Budgets,
    dumps: Sequence[Dump],
    parts: Sequence[SplitPart | None],
    results: Sequence[DumpResult],
) -> dict[str, Any]:
    """The report: `tasks` of all dumps, `overall` means per dump, settings, times."""
    from msgspec import structs

    from rescore.decode.cli import models
    from rescore.decode.lab.replay.figures import Figures

    tasks, overall = [], []
    for dump, part, result in zip(dumps, parts, results):
        figures = Figures.of(result, seed=args.seed)
        of_dump = {"dump": str(dump.path), "kind": result.kind}
        tasks += [{**of_dump, **task} for task in figures.tasks]
        facts = {
            "temperature": dump.header.temperature,
            "part": part.name if part else "all",
            "split": part and structs.asdict(part.split),
        }
        overall.append({**of_dump, **facts, **figures.overall})
    alpha = models.weights(args.alpha)
    return {
        "tasks": tasks,
        "overall": overall,
        "settings": {
            "lm": [{"path": str(path), "weight": weight} for path, weight in args.lm],
            "alpha": alpha[0] if len(alpha) == 1 else alpha,
            "paths": budgets.p,
            "top_k": budgets.top_k,
            "threads": args.threads,
            "drafters": [name for name in results[0].names if all(name in result.names for result in results)],
            "tuned": str(args.settings) if args.settings else None,
            "bootstrap": figures.bootstrap,
        },
        "ms_per_lattice": [
            {"dump": str(dump.path)}
            | {key: result.ms_per_lattice(name) for key, name in TIMED.items() if name in result.names}
            for dump, result in zip(dumps, results)
        ],
    }


Report = dict[str, Any]


def summary(report: Report) -> list[Part]:
    """A verdict, and at most eight rows of means over the tasks."""
    from rescore.decode.lab.replay import headline

    rows = headline.leading(report["settings"]["drafters"])
    best = headline.best(rows)
    of_dumps = ", ".join(
        f"{headline.verdict(best, one['block_efficiency'])} ({title(report, one).partition(', ')[2]})"
        for one in report["overall"]
    )
    shown = {**report, "settings": {**report["settings"], "drafters": rows}}
    return [
        f"{best}: tokens per pass {of_dumps}",
        "",
        "tokens per pass, mean over the tasks; ±: half of the 95% interval; verified: draft tokens per later pass",
        TextTable("drafter", rows, means_columns(shown), bold={best}),
        "",
        settings_line(report),
    ]


def tables(report: Report) -> list[Part]:
    """Settings, a table per dump, differences and times."""
    drafters = report["settings"]["drafters"]
    labels = [*drafters, "", *facts_of(report)]
    bold = {name for name in drafters if split(name)[0] in BOLD}
    found: list[Part] = [settings_line(report)]
    for overall in report["overall"]:
        columns = dump_columns(report, overall)
        found.append(TextTable("drafter", labels, columns, bold=bold, title=title(report, overall)))
    return [*found, *difference_tables(report), "", *time_lines(report)]


def title(report: Report, overall: Report) -> str:
    sampled = f", temperature {overall['temperature']:g}" if overall["temperature"] else ""
    part = "" if overall["part"] == "all" else f", {overall['part']} part"
    alike = sum(other["kind"] == overall["kind"] for other in report["overall"]) > 1
    return f"block efficiency, {overall['kind']}{sampled}{part}" + (f" ({overall['dump']})" if alike else "")


def means_columns(report: Report) -> list[Column]:
    """For every dump: verified if it differs from the first dump's, mean, half its interval, headroom."""
    columns: list[Column] = []
    for overall in report["overall"]:
        verified, *means = of_means(report, overall, overall["kind"])
        columns += [*([verified] if verified not in columns[:1] else []), *means]
    return columns


def of_means(report: Report, overall: Report, name: str, blank: int = 0) -> list[Column]:
    """Of a dump's drafters: verified, mean (by this name), half its interval, and headroom if the oracle bounds them;
    with so many blank cells below.
    """
    drafters, headroom = report["settings"]["drafters"], overall["headroom_recovered"]
    intervals = overall["interval"]["block_efficiency"]
    figures: list[tuple[str, str, Callable[[str], Any]]] = [
        ("verified", ".0f", overall["verified_per_pass"].get),
        (name, ".3f", overall["block_efficiency"].get),
        ("±", ".3f", lambda one: half_width(*intervals[one])),
        ("headroom", ".0%", lambda one: headroom.get(one) if uses_heads_alone(one) else None),
    ]
    return [
        column(header, [*map(of, drafters), *[None] * blank], form)
        for header, form, of in figures[: 4 if headroom else 3]
    ]


def difference_tables(report: Report) -> list[Part]:
    """For every dump: differences of drafters in the mean over tasks, intervals, p-values."""
    found = [{(one["drafter"], one["against"]): one for one in overall["differences"]} for overall in report["overall"]]
    pairs = [pair for pair in found[0] if all(pair in one for one in found)]
    if not pairs:
        return []
    labels = [f"{name} - {against}" for name, against in pairs]
    columns = []
    for overall, of_dump in zip(report["overall"], found):
        differences = [of_dump[pair] for pair in pairs]
        columns.append(column(overall["kind"], (one["value"] for one in differences), "+.3f"))
        columns.append(column("interval", (ends(one["low"], one["high"]) for one in differences)))
        columns.append(column("p", (one["p_value"] for one in differences), ".3f"))
    title = f"differences, mean over the tasks; {report['settings']['bootstrap']['level']:.0%} intervals over sequences"
    return [TextTable("", labels, columns, title=title)]


def dump_columns(report: Report, overall: Report) -> list[Column]:
    """Columns verified, one per task, mean, half its interval, headroom: cells of every drafter, then of the facts."""
    drafters, facts = report["settings"]["drafters"], facts_of(report)
    verified, *means = of_means(report, overall, "mean", blank=1 + len(facts))
    tasks = [
        Column(
            task["task"],
            [f"{task['block_efficiency'][name]:.2f}" for name in drafters]
            + ["", *(fact(task) for fact in facts.values())],
        )
        for task in report["tasks"]
        if task["dump"] == overall["dump"]
    ]
    return [verified, *tasks, *means]


def repetition(drafter: str, measure: str, form: str) -> Callable[[Report], str]:
    return lambda task: format(task["repetition"][drafter][measure], form)


def duel(outcome: str) -> Callable[[Report], str]:
    return lambda task: f"{task['rescored_against_base'][outcome]:,}"


FACTS_OF_MODEL: dict[str, Callable[[Report], str]] = {
    "repeats, base": repetition("base", "consecutive", ".1%"),
    "repeats, rescored": repetition("rescored", "consecutive", ".1%"),
    "max run, base": repetition("base", "max_run", ".2f"),
    "max run, rescored": repetition("rescored", "max_run", ".2f"),
    "wins": duel("wins"),
    "ties": duel("ties"),
    "losses": duel("losses"),
}


def facts_of(report: Report) -> dict[str, Callable[[Report], str]]:
    return {**FACTS, **FACTS_OF_MODEL} if all("rescored_against_base" in task for task in report["tasks"]) else FACTS


def settings_line(report: Report) -> str:
    settings = report["settings"]
    models = ", ".join(one["path"] + ("" if one["weight"] == 1 else f"={one['weight']:g}") for one in settings["lm"])
    alpha = settings["alpha"]
    weight = f"alpha {alpha:g}" if isinstance(alpha, float) else "alpha " + ",".join(f"{value:g}" for value in alpha)
    candidates = f"{settings['top_k']} candidates per slot, " if settings["top_k"] else ""
    tuned = f"; tuned as in {settings['tuned']}" if settings["tuned"] else ""
    if all("base" not in one["block_efficiency"] for one in report["overall"]):
        return f"model without heads; {models or 'no n-gram model (--lm)'}{tuned}"
    if not models:
        return f"no n-gram model (--lm); {candidates}p = {settings['paths']}{tuned}"
    several = "; trees weigh one model: rescore lm merge" if len(settings["lm"]) > 1 else ""
    return f"{models}: {weight}, {candidates}p = {settings['paths']}{tuned}{several}"


def time_lines(report: Report) -> list[str]:
    threads = report["settings"]["threads"]
    told = {"paths": f"{report['settings']['paths']} paths", "tree": "a tree of 128", "blend": "a blend of 128"}
    return [
        f"{times['dump']}: ms per lattice: "
        f"{', '.join(f'{times[key]:.3f} for {what}' for key, what in told.items() if key in times)}; "
        f"{threads} thread{'s' * (threads > 1)}"
        for times in report["ms_per_lattice"]
    ]
