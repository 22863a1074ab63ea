"""Runs `rescore report` on a dump of a model without heads."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.report_split import split_of
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.settings_parts import BLEND
from rescore.decode.report.content import Report
from rescore.decode.report.headless import headless_report
from rescore.decode.report.report import ReportSources
from rescore.decode.tuning.tuned_drafters import check_dump
from rescore.lattice.dump import Dump

# Options about lattices of heads, with their defaults.
OF_HEADS = {
    "alpha": None,
    "paths": 16,
    "top_k": None,
    "neural": None,
    "tokenizer": None,
    "sequences": 5,
    "nodes": 16,
    "model": None,
    "gpu": None,
    "passes": None,
    "length": None,
}


def made(args: argparse.Namespace, dump: Dump) -> Report:
    for name, value in OF_HEADS.items():
        if getattr(args, name) != value:
            option = f"--{name.replace('_', '-')}"
            raise Misuse(f"{option}: only for dumps of models with heads; {args.dump} has none")
    found = models.open_settings(args)
    if found:
        check_dump(found, dump)
    rescorer = models.open_rescorer(args, [dump])
    own, split = split_of(args, dump, found)
    args.part = args.part or ("heldout" if own else "all")
    sources = ReportSources(models=[str(path) for path, _ in args.lm], settings=settings(args))
    part, tasks = split.part(args.part), args.task or dump.tasks
    rows = sum(
        one.rows * len(part.sequences(dump, one.name)) // one.sequences
        for one in dump.header.tasks
        if one.name in tasks
    )
    with output.progress_bar() as bar, models.naming(dump):
        progress = bar.add_task(str(dump.path), total=2 * rows)
        return headless_report(
            dump,
            rescorer,
            part,
            sources,
            tuned=found.calibration(BLEND) if found else None,
            tasks=tasks,
            seed=args.seed,
            advance=partial(bar.advance, progress),
        )


def settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "command": shlex.join(command(args)),
        "language_model": ", ".join(str(path) for path, _ in args.lm) or "none",
        "part": args.part,
        "seed": args.seed,
        "threads": args.threads,
    }


def command(args: argparse.Namespace) -> Sequence[str]:
    """The command that reproduces the report's figures."""
    words = ["rescore", "report", str(args.dump)]
    if args.settings:
        words += ["--settings", str(args.settings)]
    else:
        words += [word for path, _ in args.lm for word in ("--lm", str(path))]
    words += ["--part", args.part, "--seed", str(args.seed)]
    if args.tune_sequences is not None:
        words += ["--tune-sequences", str(args.tune_sequences)]
    return [*words, *(word for task in args.task or () for word in ("--task", task))]
