"""`rescore run`: what rescoring buys on dumps."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from rich.table import Table

from rescore.decode.cli import arguments, output
from rescore.decode.draft_writer import DraftWriter
from rescore.decode.replay import ReplayOptions
from rescore.decode.run import DRAFTERS, DumpResult, mean_over_tasks, rescore_dump
from rescore.lattice.dump import Dump

DESCRIPTION = """\
Replay dumps with every drafter and print the block efficiency of each: generated tokens per target pass.

rows     base               the first candidate of every head
         rescored           the best string of the lattice with the language model
         parallel_base      the p best strings without the language model, verified as a batch
         parallel_rescored  the p best strings with it
         tree_base_N        the tree of the N most probable prefixes without the language model
         tree_N             the same with it
         lm_alone_N         such a tree of the language model alone, without any head: the control
         oracle             the best that any choice among the candidates can reach
columns  verified           draft tokens that one target pass verifies
         one column a task  block efficiency
         mean               over the tasks
         headroom           (B - B_base) / (B_oracle - B_base), the mean over the tasks
"""

EXAMPLES = """\
examples:
  rescore run data/demo/sampled --lm data/demo/demo.ngram
  rescore run data/demo/forced data/demo/sampled --lm data/demo/demo.ngram --json run.json
  rescore run DUMP --lm general.ngram=0.3 --lm domain.ngram=0.7 --alpha 0.5 --paths 8 --drafts drafts.parquet
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser("run", parents=[common], help="rescore dumps and print what it buys", description=DESCRIPTION,
                              epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dumps", nargs="+", type=Path, metavar="DUMP", help="folder of a dump (docs/dump-format.md)")
    arguments.add_rescoring(parser)
    parser.add_argument("--task", action="append", metavar="NAME", help="only this task; may be given several times")
    parser.add_argument("--drafts", type=Path, metavar="FILE", help="write every step's drafts, costs and accepted lengths (.parquet or .jsonl)")
    parser.add_argument("--allow-inexact", action="store_true", help="accept a greedy dump whose tokens are not head 1's first candidates")
    arguments.add_json(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> None:
    rescorer = arguments.rescorer(args)
    dumps = [Dump.open(path, allow_inexact=args.allow_inexact) for path in args.dumps]
    options = ReplayOptions(paths=args.paths, top_k=args.top_k, semantics=args.semantics)
    for dump in dumps:
        check_tasks(dump, args.task)
    writer = DraftWriter(args.drafts) if args.drafts else None
    results = []
    try:
        with output.progress_bar() as bar:
            for dump in dumps:
                rows = sum(task.rows for task in dump.header.tasks if not args.task or task.name in args.task)
                progress = bar.add_task(str(dump.path), total=rows)
                listeners = [lambda *step, path=str(dump.path): writer.add(path, *step)] if writer else []
                results.append(rescore_dump(dump, rescorer, options, tasks=args.task, listeners=listeners,
                                            advance=lambda n, progress=progress: bar.advance(progress, n)))
        if writer:
            writer.close()
    except BaseException:
        if writer:
            writer.discard()
        raise
    report = to_json(args, options, dumps, results)
    if args.json:
        output.write_json(args.json, report)
    if str(args.json) != "-":
        show(report)


def check_tasks(dump: Dump, wanted: list[str] | None) -> None:
    for name in wanted or ():
        if name not in dump.tasks:
            raise ValueError(f"task {name!r} is not in the dump {dump.path}; it has {', '.join(dump.tasks)}")


def to_json(args: argparse.Namespace, options: ReplayOptions, dumps: list[Dump], results: list[DumpResult]) -> dict[str, Any]:
    """The report: `tasks` of all dumps, `overall` means per dump, settings, times."""
    tasks, overall = [], []
    for dump, result in zip(dumps, results):
        own = [{"dump": str(dump.path), "kind": result.kind, **task.to_json()} for task in result.tasks]
        tasks += own
        means = {measure: mean_over_tasks(own, measure) for measure in ("block_efficiency", "headroom_recovered", "verified_per_pass")}
        overall.append({"dump": str(dump.path), "kind": result.kind, "temperature": dump.header.temperature, **means})
    return {
        "tasks": tasks,
        "overall": overall,
        "settings": {
            "lm": [{"path": str(path), "weight": weight} for path, weight in args.lm],
            "alpha": args.alpha[0] if len(args.alpha) == 1 else args.alpha,
            **dataclasses.asdict(options),
            "threads": args.threads,
            "drafters": [name for name in DRAFTERS if name in tasks[0]["block_efficiency"]],
        },
        "ms_per_lattice": [{"dump": str(dump.path), **result.ms_per_lattice()} for dump, result in zip(dumps, results)],
    }


def show(report: dict[str, Any]) -> None:
    screen = output.console()
    tables = [efficiency_table(report, overall) for overall in report["overall"]]
    side_by_side = Table.grid(padding=(0, 2))
    if sum(screen.measure(table).maximum for table in tables) + 2 * len(tables) <= screen.width:
        side_by_side.add_row(*tables)
    else:
        for table in tables:
            side_by_side.add_row(table)
    screen.print(side_by_side)
    screen.print(facts_table(report))
    for times in report["ms_per_lattice"]:
        screen.print(f"{times['dump']}: {times['paths']:.3f} ms per lattice for the {report['settings']['paths']} best drafts, "
                     f"{times['tree']:.3f} ms for the tree of 128, {report['settings']['threads']} threads", highlight=False)


def efficiency_table(report: dict[str, Any], overall: dict[str, Any]) -> Table:
    """Drafters down, tasks across, for one dump."""
    tasks = [task for task in report["tasks"] if task["dump"] == overall["dump"]]
    sampled = f", temperature {overall['temperature']:g}" if overall["temperature"] else ""
    table = Table(title=f"{overall['kind']}{sampled}: block efficiency", title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0))
    table.add_column("drafter")
    for name in ("verified", *(task["task"] for task in tasks), "mean", "headroom"):
        table.add_column(name, justify="right")
    for name in report["settings"]["drafters"]:
        headroom = overall["headroom_recovered"].get(name)
        cells = [f"{task['block_efficiency'][name]:.2f}" for task in tasks]
        style = "bold" if name.startswith("tree_") and not name.startswith("tree_base") else None
        table.add_row(name, f"{overall['verified_per_pass'][name]:.0f}", *cells, f"{overall['block_efficiency'][name]:.3f}",
                      "" if headroom is None else f"{headroom:.0%}", style=style)
    return table


def facts_table(report: dict[str, Any]) -> Table:
    table = Table(title="tasks", title_justify="left", header_style="bold", box=None, padding=(0, 1, 0, 0))
    for name in ("dump", "task"):
        table.add_column(name)
    for name in ("sequences", "tokens", "loops", "repeated: base", "rescored", "longest run: base", "rescored", "wins/ties/losses"):
        table.add_column(name, justify="right")
    for task in report["tasks"]:
        before, after, duel = task["repetition"]["base"], task["repetition"]["rescored"], task["rescored_against_base"]
        table.add_row(task["kind"], task["task"], f"{task['sequences']:,}", f"{task['tokens']:,}", f"{task['loop_share']:.0%}",
                      f"{before['consecutive']:.1%}", f"{after['consecutive']:.1%}", f"{before['max_run']:.2f}", f"{after['max_run']:.2f}",
                      f"{duel['wins']}/{duel['ties']}/{duel['losses']}")
    return table
