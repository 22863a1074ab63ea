"""`rescore lm count`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli import output
from rescore.decode.cli.lm_groups import CountingArgs
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
    from rescore.decode.cli import lm_files
    from rescore.decode.cli.screen import build_progress
    from rescore.lm.build.counts_files import windows_of, write_counts
    from rescore.lm.build.windows import CountsHeader

    output.check_stdin(*args.inputs)
    if args.out.exists() and any(args.out.iterdir()):
        raise ValueError(f"{args.out}: expected a new or empty folder for the counts; name another, or empty it")
    tokenizer = lm_files.open_tokenizer(args.tokenizer, args)
    options = lm_files.count_options(args, tokenizer)
    source = lm_files.source_of(args, options, tokenizer)
    with lm_files.work_folder(args, args.out) as work:
        with build_progress() as progress:
            runs = lm_files.staged_build(work, options, args, progress).runs(source)
            progress("write", 0, 0, 0, str(args.out))
            header = CountsHeader(**options.layout, tokenizer=tokenizer.sha256 if tokenizer else None)
            header = write_counts(args.out, windows_of(runs, options), header)
        skipped, report = lm_files.all_skipped(work), lm_files.work_figures(work)
    info: dict[str, Any] = {"counts": str(args.out)}
    info |= {name: getattr(header, name) for name in ("order", "vocab_size", "tokens")}
    rows = [*info.items(), *((f"{own['stage']} (seconds)", own["seconds"]) for own in report["stages"])]
    return Result({**info, **report, "skipped": skipped.to_json()}, [Facts(rows), *lm_files.remarks(skipped)])
