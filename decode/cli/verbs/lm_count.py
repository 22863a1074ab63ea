"""`rescore lm count`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli import output
from rescore.decode.cli.groups import CountingArgs
from rescore.decode.cli.options import ReportedArgs, option
from rescore.decode.cli.output import Facts, Result
from rescore.decode.cli.values import Written


@dataclass(frozen=True, kw_only=True)
class LmCountArgs(CountingArgs, ReportedArgs):
    r"""Count n-grams of text or tokens on one of several machines, into a folder of
    Parquet files and counts.json. `rescore lm build` adds up such folders. Inputs
    are those of `rescore lm build`; text needs --tokenizer. Folders of counts are
    inputs too, which merges them. The format is described in
    docs/use/ngram-models-on-a-cluster.md.

    examples:
      rescore lm count 'shard-0*.json.gz' --tokenizer tokenizer.json -o counts-0
      rescore lm build counts-* --tokenizer tokenizer.json --min-count 1,1,2,4 \
          --max-ngrams 100M -o lm.ngram
    """

    out: Path = option("DIR", "folder for the counts, new or empty", Written(folder=True), short="-o", required=True)


def run(args: LmCountArgs) -> Result:
    from rescore.decode.cli import inputs
    from rescore.decode.cli.building import all_skipped, count_options, source_of, work_figures
    from rescore.decode.cli.screen import BuildProgress
    from rescore.lm.build.counts_files import windows_of, write_counts
    from rescore.lm.build.staged import Resources, StagedBuild
    from rescore.lm.build.work import WorkFolder

    output.check_stdin(*args.inputs)
    if args.out.exists() and any(args.out.iterdir()):
        raise ValueError(f"{args.out}: expected a new or empty folder for the counts; name another, or empty it")
    tokenizer = inputs.open_tokenizer(args.tokenizer, args)
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
        skipped, report = all_skipped(work), work_figures(work)
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
    return Result({**info, **report, "skipped": skipped.to_json()}, [Facts(rows), *inputs.remarks(skipped)])
