"""Runs `rescore lm count`."""

from __future__ import annotations

import argparse
from typing import Any

from rescore.decode.cli.actions import inputs, models, output
from rescore.decode.cli.actions.build_progress import BuildProgress
from rescore.decode.cli.actions.lm_build import all_skipped, count_options, facts, source_of
from rescore.lm.counts_files import windows_of, write_counts
from rescore.lm.staged import Resources, StagedBuild
from rescore.lm.work import WorkFolder


def call(args: argparse.Namespace) -> None:
    output.check_stdin(*args.inputs)
    if args.out.exists() and any(args.out.iterdir()):
        raise ValueError(f"{args.out}: expected a new or empty folder for the counts; name another, or empty it")
    tokenizer = models.open_tokenizer(args)
    options = count_options(args, tokenizer)
    source = source_of(args, options, tokenizer)
    folder = args.work or args.out.with_name(f"{args.out.name}.work")
    work = WorkFolder(folder, args.disk, temporary=args.work is None)
    try:
        with BuildProgress() as progress:
            runs = StagedBuild(work, options, Resources(memory_bytes=args.ram, threads=args.threads), progress).runs(
                source
            )
            progress("write", 0, 0, 0, str(args.out))
            header = write_counts(
                args.out,
                windows_of(runs, options),
                order=options.order,
                vocab_size=options.vocab_size,
                end_of_text=options.end_of_text,
                tokenizer=tokenizer.sha256 if tokenizer else None,
            )
        skipped, report = all_skipped(work), facts(work)
    except ValueError:
        work.mark_failed()
        raise
    finally:
        work.close()
    if args.work is None:
        work.remove()
    info: dict[str, Any] = {
        "counts": str(args.out),
        "order": header.order,
        "vocab_size": header.vocab_size,
        "tokens": header.tokens,
    }
    rows = [*info.items(), *((f"{own['stage']} (seconds)", own["seconds"]) for own in report["stages"])]
    output.report(args, {**info, **report, "skipped": skipped.to_json()}, output.facts(rows), *inputs.remarks(skipped))
