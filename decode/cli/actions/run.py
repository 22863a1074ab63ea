"""Runs `rescore run`."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.run_tables import summary, tables
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.replay import headless
from rescore.decode.replay.bootstrap import RESAMPLES, Resampled
from rescore.decode.replay.draft_writer import DraftWriter
from rescore.decode.replay.names import (
    BASE,
    BLENDED,
    CALIBRATED_TREE,
    HEADS_TREE,
    LM_ALONE,
    LM_AND_TEXT,
    OPEN_TREE,
    PARALLEL_BASE,
    PARALLEL_RESCORED,
    PARALLEL_TUNED,
    RESCORED,
    TREE,
    by_task,
    sized,
)
from rescore.decode.replay.run import DumpResult, Listener, mean_over_tasks, replay_dump
from rescore.decode.replay.standard import MODEL_SIZES, TREE_SIZES, ReplayOptions
from rescore.decode.tuning.tuned_drafters import is_tuned_on, run_drafters
from rescore.lattice.dump import Dump
from rescore.lattice.extras import needed_for
from rescore.lattice.split import Split, SplitPart

TIMED = {"paths": (PARALLEL_RESCORED,), "tree": (sized(TREE, max(TREE_SIZES)), sized(BLENDED, max(headless.SIZES)))}
MEANS = ("block_efficiency", "headroom_recovered", "verified_per_pass", "accepted_per_verified")
# Gain of the models over heads alone, and of heads over the model alone.
COMPARED = (
    (RESCORED, BASE),
    (PARALLEL_RESCORED, PARALLEL_BASE),
    *((sized(TREE, n), sized(HEADS_TREE, n)) for n in TREE_SIZES),
    *((sized(TREE, n), sized(LM_ALONE, n)) for n in MODEL_SIZES),
)
# Gain of tuning, of open lattices (also over heads alone), and of heads over model and running text.
TUNED_PAIRS = (
    (CALIBRATED_TREE, TREE),
    (OPEN_TREE, CALIBRATED_TREE),
    (OPEN_TREE, TREE),
    (OPEN_TREE, HEADS_TREE),
    (OPEN_TREE, LM_AND_TEXT),
    (by_task(OPEN_TREE), by_task(CALIBRATED_TREE)),
    (by_task(OPEN_TREE), by_task(LM_AND_TEXT)),
)
COMPARED_TUNED = (
    (PARALLEL_TUNED, PARALLEL_RESCORED),
    *((sized(one, n), sized(other, n)) for one, other in TUNED_PAIRS for n in MODEL_SIZES),
)


def call(args: argparse.Namespace) -> None:
    if args.drafts and args.drafts.suffix == ".parquet":
        with needed_for("writing drafts as Parquet"):
            import pyarrow  # noqa: F401
    dumps = models.open_dumps(args.dumps, args)
    check_alike(dumps, args)
    settings = models.open_settings(args)
    rescorer = models.open_rescorer(args, dumps)
    memory = open_memory(args, dumps)
    parts = parts_of(dumps, args, settings)
    options = ReplayOptions(paths=args.paths, top_k=args.top_k)
    results = []
    with ExitStack() as stack:
        writer = None
        if args.drafts:
            stream = stack.enter_context(output.writing(args.drafts))
            writer = stack.enter_context(DraftWriter(stream, args.drafts.suffix))
        with output.progress_bar() as bar:
            for dump, part in zip(dumps, parts):
                rows = sum(task.rows for task in dump.header.tasks if not args.task or task.name in args.task)
                progress = bar.add_task(str(dump.path), total=rows)
                listeners = [writing_drafts(writer, dump)] if writer else []
                with models.naming(dump):
                    drafters = run_drafters(dump, rescorer, options, settings, memory)
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
    report = to_json(args, options, dumps, parts, results)
    if str(args.tables) == "-":
        output.write_figures(args, report)
        output.show(*tables(report, output.width()))
        return
    if args.tables:
        output.write_text(args.tables, output.rendered(*tables(report, output.PIPE_WIDTH)))
    more = [] if args.tables else ["--tables -: every drafter, task and difference"]
    output.report(args, report, *summary(report, output.width()), *more)


def open_memory(args: argparse.Namespace, dumps: Sequence[Dump]) -> TextMemory | None:
    if args.memory is None:
        return None
    header = dumps[0].header
    if header.heads > 1:
        raise Misuse(f"--memory: only for dumps of models without heads; {dumps[0].path} has heads")
    if header.end_of_text is None:
        raise Misuse(f"--memory: {dumps[0].path} has no end-of-text id")
    return TextMemory.open(args.memory, vocab_size=header.vocab_size, end_of_text=header.end_of_text, frozen=True)


def check_alike(dumps: Sequence[Dump], args: argparse.Namespace) -> None:
    """Misuse for a mix of dumps with and without heads, and for options that need heads."""
    without = [dump for dump in dumps if dump.header.heads == 1]
    if not without:
        return
    if len(without) < len(dumps):
        raise Misuse(f"{without[0].path}: the dump of a model without heads has other drafters; replay it alone")
    for name, value in (("drafts", args.drafts), ("alpha", args.alpha)):
        if value is not None:
            raise Misuse(f"--{name}: only for dumps of models with heads; {without[0].path} has none")


def writing_drafts(writer: DraftWriter, dump: Dump) -> Listener:
    """A listener that writes the p rescored paths of every row they visit."""

    def add(block, outcomes) -> None:
        one = outcomes[PARALLEL_RESCORED]
        writer.add(str(dump.path), block, one.drafts, one.visited)

    return add


def parts_of(dumps: Sequence[Dump], args: argparse.Namespace, settings: Settings | None) -> list[SplitPart | None]:
    """The part of each dump to replay, None for all of it. The default for the dump that settings were tuned on is its
    held-out part.
    """
    parts = []
    for dump in dumps:
        tuned = settings is not None and is_tuned_on(settings, dump)
        name = args.part or ("heldout" if tuned else "all")
        if args.tune_sequences is not None and (tuned or name == "all"):
            raise Misuse(
                "--tune-sequences: --settings already has the split of this dump; leave it out"
                if tuned
                else "--tune-sequences needs --part tune or --part heldout"
            )
        split = settings.split if settings and tuned else None
        parts.append(None if name == "all" else (split or Split.of_dump(dump, args.tune_sequences)).part(name))
    return parts


def to_json(
    args: argparse.Namespace,
    options: ReplayOptions,
    dumps: Sequence[Dump],
    parts: Sequence[SplitPart | None],
    results: Sequence[DumpResult],
) -> dict[str, Any]:
    """The report: `tasks` of all dumps, `overall` means per dump, settings, times."""
    tasks, overall = [], []
    for dump, part, result in zip(dumps, parts, results):
        resampled = Resampled.of(result, seed=args.seed)
        compared = (
            (*headless.COMPARED, *headless.COMPARED_TUNED)
            if dump.header.heads == 1
            else (*COMPARED, *COMPARED_TUNED)
            if args.lm
            else ()
        )
        pairs = [pair for pair in compared if {*pair} <= {*result.names}]
        own = [
            {"dump": str(dump.path), "kind": result.kind, **task.to_json(), **uncertainty(resampled, pairs, task.task)}
            for task in result.tasks
        ]
        tasks += own
        means = {measure: mean_over_tasks(own, measure) for measure in MEANS}
        facts = {
            "dump": str(dump.path),
            "kind": result.kind,
            "temperature": dump.header.temperature,
            "part": part.name if part else "all",
            "split": part and part.split.to_json(),
        }
        overall.append({**facts, **means, **uncertainty(resampled, pairs)})
    alpha = models.weights(args)
    return {
        "tasks": tasks,
        "overall": overall,
        "settings": {
            "lm": [{"path": str(path), "weight": weight} for path, weight in args.lm],
            "alpha": alpha[0] if len(alpha) == 1 else alpha,
            **dataclasses.asdict(options),
            "threads": args.threads,
            "drafters": results[0].names,
            "tuned": str(args.settings) if args.settings else None,
            "bootstrap": {"level": resampled.level, "resamples": RESAMPLES, "seed": args.seed},
        },
        "ms_per_lattice": [
            {"dump": str(dump.path), **{key: result.ms_per_lattice(name) for key, name in timed(result).items()}}
            for dump, result in zip(dumps, results)
        ],
    }


def timed(result: DumpResult) -> dict[str, str]:
    """The drafters whose times are reported."""
    return {key: name for key, names in TIMED.items() for name in names if name in result.names}


def uncertainty(resampled: Resampled, pairs: Sequence[tuple[str, str]], task: str | None = None) -> dict[str, Any]:
    """Intervals, and differences of pairs of drafters, for a task or for the mean over tasks."""
    differences = []
    for name, against in pairs:
        difference = resampled.difference(name, against, task)
        differences.append(
            {
                "drafter": name,
                "against": against,
                **dataclasses.asdict(difference.interval),
                "p_value": difference.p_value,
            }
        )
    return {"interval": resampled.to_json(task), "differences": differences}
