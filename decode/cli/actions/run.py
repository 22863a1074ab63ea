"""Runs `rescore run`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.run_tables import summary, tables
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.names import BASE, BLEND, PARALLEL_BASE, PARALLEL_RESCORED, RESCORED, TREE, sized
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.replay.figures import Figures
from rescore.decode.replay.replay import Outcome
from rescore.decode.replay.rows import Budgets, RecordedSources, rows_of
from rescore.decode.replay.run import DumpResult, replay_dump
from rescore.decode.replay.table import DRAFTS, PASSES, RecordWriter, write_drafts, write_passes
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.split import SplitPart

LARGEST = 128  # nodes
TIMED = {"paths": PARALLEL_RESCORED, "tree": sized(TREE, LARGEST), "blend": sized(BLEND, LARGEST)}


def call(args: argparse.Namespace) -> None:
    dumps = models.open_dumps(args.dumps, args)
    settings = models.open_settings(args)
    rescorer = models.open_rescorer(args, dumps)
    memory = open_memory(args, dumps)
    parts = parts_of(dumps, args, settings)
    budgets = Budgets(p=args.paths, top_k=args.top_k)
    results = []
    with ExitStack() as stack:
        passes, drafts = (
            stack.enter_context(RecordWriter(stack.enter_context(output.writing(path)), path.suffix, fields))
            if path
            else None
            for path, fields in ((args.out, PASSES), (args.drafts, DRAFTS))
        )
        with output.progress_bar() as bar:
            for dump, part in zip(dumps, parts):
                rows = sum(task.rows for task in dump.header.tasks if not args.task or task.name in args.task)
                progress = bar.add_task(str(dump.path), total=rows)
                listeners = [partial(write_passes, passes, dump)] if passes else []
                listeners += [partial(write_paths, drafts, dump)] if drafts else []
                with models.naming(dump):
                    counts = part.split.part("tune") if part and part.name == "heldout" else None
                    sources = RecordedSources(dump, rescorer, counts=counts)
                    drafters = rows_of(sources, budgets, settings=settings, memory=memory, everywhere=(BASE, RESCORED))
                    results.append(
                        replay_dump(
                            dump,
                            drafters,
                            tasks=args.task,
                            split=part,
                            advance=partial(bar.advance, progress),
                            listeners=listeners,
                        )
                    )
    report = to_json(args, budgets, dumps, parts, results)
    if args.all:
        output.write_figures(args, report)
        output.show(*tables(report, output.width()))
    else:
        output.report(args, report, *summary(report, output.width()), "--all: every drafter, task and difference")


def open_memory(args: argparse.Namespace, dumps: Sequence[Dump]) -> TextMemory | None:
    if args.memory is None:
        return None
    header = dumps[0].header
    if header.end_of_text is None:
        raise Misuse(f"--memory: {dumps[0].path} has no end-of-text id")
    return TextMemory.open(args.memory, vocab_size=header.vocab_size, end_of_text=header.end_of_text, frozen=True)


def write_paths(writer: RecordWriter, dump: Dump, block: DumpBlock, outcomes: Mapping[str, Outcome]) -> None:
    """Writes the p best paths of every row they visit."""
    one = next((outcomes[name] for name in (PARALLEL_RESCORED, PARALLEL_BASE) if name in outcomes), None)
    if one is None or one.drafts is None:
        raise Misuse(f"--drafts: {dump.path} is of a model without heads, and so without paths to write")
    write_drafts(writer, dump, block, one.drafts, one.visited)


def parts_of(dumps: Sequence[Dump], args: argparse.Namespace, settings: Settings | None) -> list[SplitPart | None]:
    """The part of each dump to replay, None for all of it. The default for the dump that settings were tuned on is its
    held-out part.
    """
    parts = []
    for dump in dumps:
        tuned, split = models.split_of(args, dump, settings)
        name = args.part or ("heldout" if tuned else "all")
        if args.tune_sequences is not None and name == "all":
            raise Misuse("--tune-sequences needs --part tune or --part heldout")
        parts.append(None if name == "all" else split.part(name))
    return parts


def to_json(
    args: argparse.Namespace,
    budgets: Budgets,
    dumps: Sequence[Dump],
    parts: Sequence[SplitPart | None],
    results: Sequence[DumpResult],
) -> dict[str, Any]:
    """The report: `tasks` of all dumps, `overall` means per dump, settings, times."""
    tasks, overall = [], []
    for dump, part, result in zip(dumps, parts, results):
        figures = Figures.of(result, seed=args.seed)
        of_dump = {"dump": str(dump.path), "kind": result.kind}
        tasks += [{**of_dump, **task} for task in figures.tasks]
        facts = {
            "temperature": dump.header.temperature,
            "part": part.name if part else "all",
            "split": part and part.split.to_json(),
        }
        overall.append({**of_dump, **facts, **figures.overall})
    alpha = models.weights(args)
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
            "bootstrap": figures.to_json()["bootstrap"],
        },
        "ms_per_lattice": [
            {"dump": str(dump.path)}
            | {key: result.ms_per_lattice(name) for key, name in TIMED.items() if name in result.names}
            for dump, result in zip(dumps, results)
        ],
    }
