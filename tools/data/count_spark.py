"""Counts n-grams of a text on an Apache Spark cluster, for `rescore lm build`.

    spark-submit tools/data/count_spark.py INPUT... -o OUT --tokenizer tokenizer.json [--order N]

INPUT   paths or globs, on any file system that Spark reads, of
        .json .jsonl   JSON lines with the text under "text" (also .gz, .bz2)
        .parquet       a column of text, or of lists of token ids, each row
                       made of whole documents
        Quote globs, so that Spark expands them and not the shell.
OUT     a new folder on a file system that driver and executors share, for
        Parquet files of n-grams and counts, and counts.json, written last.

Executors need this package with its extra "spark"; see "On a cluster" in
docs/use/ngram-models-on-a-cluster.md.

examples:
  spark-submit --master spark://host:7077 tools/data/count_spark.py \\
      's3a://bucket/c4/en/c4-train.*.json.gz' --tokenizer tokenizer.json \\
      --order 4 --partitions 8192 -o s3a://bucket/c4-counts
  spark-submit tools/data/count_spark.py tokens.parquet --field tokens \\
      --vocab-size 50257 --end-of-text 50256 -o counts
  python tools/data/count_spark.py --master 'local[2]' a.jsonl b.jsonl \\
      --tokenizer tokenizer.json -o counts
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import structs

from rescore.decode.cli.lm_files import remarks
from rescore.lm.build.spark_worker import BATCH

SETTINGS = {
    # Documents may be long; they are tokenized in batches of as many.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH),
    "spark.sql.adaptive.enabled": "true",
}


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    tokenizer = None
    if args.tokenizer:
        try:
            tokenizer = args.tokenizer.read_bytes()
        except OSError as error:
            raise SystemExit(f"--tokenizer {args.tokenizer}: {error.strerror}") from None
    try:
        from rescore.lm.build.spark import SparkOptions, count_windows
    except ImportError as error:
        raise SystemExit(str(error)) from None
    began = time.monotonic()
    try:
        options = SparkOptions(
            order=args.order,
            form=args.format,
            field=args.field,
            partitions=args.partitions,
            strict=args.strict,
            overwrite=args.overwrite,
        )
        found = count_windows(
            session(args.master),
            args.inputs,
            args.out,
            tokenizer_json=tokenizer,
            vocab_size=args.vocab_size,
            end_of_text=args.end_of_text,
            options=options,
        )
    except ValueError as error:
        raise SystemExit(f"count_spark: {error}") from None
    report(found, time.monotonic() - began, args)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", metavar="INPUT")
    parser.add_argument("-o", "--out", required=True, metavar="OUT", help="folder to write")
    parser.add_argument(
        "--tokenizer", type=Path, metavar="FILE", help="a Hugging Face tokenizer.json on the driver, for text"
    )
    parser.add_argument("--vocab-size", type=int, metavar="V", help="for token ids")
    parser.add_argument(
        "--end-of-text",
        metavar="TOKEN|ID",
        help="the end-of-text token: its name (default: the usual ones, such as <|endoftext|>), or, for ids, its id",
    )
    parser.add_argument("--order", type=int, default=4, metavar="N", help="length of the longest n-grams (default: 4)")
    parser.add_argument(
        "--field", default="text", metavar="NAME", help="JSON key or Parquet column of the documents (default: text)"
    )
    parser.add_argument("--format", choices=("json", "parquet"), help="format of the inputs (default: by their names)")
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="P",
        help="partitions of the shuffle (default: spark.sql.shuffle.partitions)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="stop at the first malformed document instead of skipping it"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an existing OUT")
    parser.add_argument(
        "--master", metavar="URL", help="e.g. local[2] or spark://host:7077 (default: that of spark-submit)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    return parser.parse_args(argv)


def session(master: str | None) -> Any:
    """The Spark session. Local workers run this Python."""
    from pyspark.sql import SparkSession

    if master and master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("count n-grams")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return (builder.master(master) if master else builder).getOrCreate()


def report(found: Any, seconds: float, args: argparse.Namespace) -> None:
    tokens = found.header.tokens
    print(
        f"{args.out}: {tokens:,} tokens of {found.documents:,} documents, {found.windows:,} distinct windows of up to "
        f"{found.header.order} tokens"
    )
    print(f"{seconds:,.0f} s, {tokens / seconds:,.0f} tokens/s")
    for line in remarks(found.skipped):
        print(line, file=sys.stderr)
    if args.json:
        figures = {"output": args.out, **asdict(found), "seconds": seconds}
        args.json.write_text(json.dumps(figures, indent=2, default=structs.asdict) + "\n")


if __name__ == "__main__":
    main()
