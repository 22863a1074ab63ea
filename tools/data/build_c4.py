"""Builds 2- to 4-gram models of English C4 with GPT-2 tokens, on one machine or with a Spark cluster.

    python tools/data/build_c4.py C4 --tokenizer tokenizer.json -o OUT [--counts-on spark --master URL]

C4   folder with c4-train.*-of-01024.json.gz and c4-validation.*-of-00008.json.gz (huggingface.co/datasets/allenai/c4,
     folder en); with Spark any folder that Spark reads
OUT  folder for {2,3,4}gram.ngram, .arpa.gz and the work folders; existing files are not made again. With Spark, the
     counts must be visible to the cluster and to this machine.

Prints the plan and its estimated cost, asks for confirmation, counts once with `rescore lm count` or, with --counts-on
spark, `spark-submit count_spark.py`, and builds each model from the counts with `rescore lm build`. The estimate uses
published or measured figures (the plan names the sources), which options override; --sample SHARD measures tokens per
document and the tokenizer's speed on this machine.

examples:
  python tools/data/build_c4.py c4/en --tokenizer gpt2.json -o models --dry-run
  python tools/data/build_c4.py c4/en --tokenizer gpt2.json -o models \\
      --sample c4/en/c4-train.00000-of-01024.json.gz --threads 16 --ram 64G
  python tools/data/build_c4.py s3a://bucket/c4/en --tokenizer gpt2.json -o models \\
      --counts-on spark --counts /shared/c4-counts --cores 256 \\
      --master spark://host:7077
"""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from c4_cost import PUBLISHED, Costs, Facts, amount, estimate, gigabytes, replaced
from rich.console import Console
from rich.table import Table

TRAIN, VALID = "c4-train.*-of-01024.json.gz", "c4-validation.*-of-00008.json.gz"
SHARDS = 1024
SAMPLE = 2000


def main(argv: list[str] | None = None) -> None:
    args = arguments(argv)
    console = Console(soft_wrap=True)
    shards = check_inputs(args)
    given = {name: float(value) for name in PUBLISHED if (value := getattr(args, name)) is not None}
    facts = replaced(PUBLISHED, "given", **given)
    if args.sample:
        facts = sampled(facts, args, console)
    costs = estimate(
        facts,
        share=shards / SHARDS,
        orders=args.orders,
        cores=args.cores if args.counts_on == "spark" else args.threads,
        memory=args.ram,
    )
    stages = plan(args, costs)
    show(facts, costs, stages, args, console)
    if args.dry_run:
        return
    check_programs(args)
    check_disk(args, costs, console)
    if not args.yes and not agreed():
        raise SystemExit("nothing was done")
    for name, made, command in stages:
        run(name, made, command, console)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("c4", metavar="C4")
    parser.add_argument(
        "--tokenizer", type=Path, required=True, metavar="FILE", help="GPT-2's tokenizer.json, or another"
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="OUT")
    parser.add_argument(
        "--orders", type=orders, default=(2, 3, 4), metavar="N,..", help="orders of the models (default: 2,3,4)"
    )
    parser.add_argument(
        "--min-count",
        default="1,1,2,4",
        metavar="C1,C2,..",
        help="smallest count kept for each order (default: 1,1,2,4)",
    )
    parser.add_argument("--max-ngrams", default="100M", metavar="N", help="size of each model (default: 100M)")
    parser.add_argument(
        "--ram", type=amount, default="4G", metavar="BYTES", help="memory limit of rescore lm build (default: 4G)"
    )
    parser.add_argument(
        "--disk", type=amount, metavar="BYTES", help="size limit of its work folder (default: the estimate)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="threads of rescore lm build (default: all cores)",
    )
    parser.add_argument(
        "--counts-on",
        choices=("machine", "spark"),
        default="machine",
        help="where n-grams are counted (default: machine)",
    )
    parser.add_argument("--counts", metavar="DIR", help="folder for the counts (default: OUT/counts)")
    parser.add_argument(
        "--master", metavar="URL", help="with spark: URL of the cluster (default: that of spark-submit)"
    )
    parser.add_argument(
        "--cores", type=int, default=64, metavar="N", help="with spark: cores of all executors together (default: 64)"
    )
    parser.add_argument(
        "--spark-conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="with spark: argument passed to spark-submit; repeatable",
    )
    parser.add_argument(
        "--sample", type=Path, metavar="SHARD", help=f"measure the first {SAMPLE:,} documents of this shard"
    )
    group = parser.add_argument_group("figures of the estimate")
    for name, fact in PUBLISHED.items():
        group.add_argument(f"--{name.replace('_', '-')}", type=amount, metavar="X", help=fact.what)
    parser.add_argument("--dry-run", action="store_true", help="print the plan only")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    return parser.parse_args(argv)


def orders(text: str) -> tuple[int, ...]:
    try:
        values = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        values = ()
    if not values or values[0] < 2 or values[-1] > 4:
        raise argparse.ArgumentTypeError(
            f"expected some of 2,3,4 (no growth is known for longer n-grams), got {text!r}"
        )
    return values


def remote(path: str) -> bool:
    return "://" in path


def check_inputs(args: argparse.Namespace) -> int:
    """The number of training shards; 1024 if the folder is not on this machine."""
    if args.counts and remote(args.counts):
        raise SystemExit(
            f"--counts {args.counts}: expected a folder that this machine can read too; "
            "or run count_spark.py, copy the counts, and run rescore lm build"
        )
    if remote(args.c4):
        if args.counts_on == "machine":
            raise SystemExit(f"{args.c4}: expected a folder on this machine, or --counts-on spark")
        return SHARDS
    found = len(glob.glob(f"{glob.escape(args.c4)}/{TRAIN}"))
    if not found and not args.dry_run:
        raise SystemExit(
            f"{args.c4}: expected the shards {TRAIN}, got none; they are in folder en of "
            "huggingface.co/datasets/allenai/c4"
        )
    return found or SHARDS


def sampled(facts: Facts, args: argparse.Namespace, console: Console) -> Facts:
    """Tokens per document and tokens/s of one core, on the first documents of a shard."""
    from rescore.lm.model.tokenizer import TextTokenizer

    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = TextTokenizer.open(args.tokenizer)
    with gzip.open(args.sample, "rb") as lines:
        texts = [json.loads(line)["text"] for line in islice(lines, SAMPLE)]
    if len(texts) < 2:
        raise SystemExit(f"{args.sample}: expected documents to sample, got {len(texts)}")
    began = time.process_time()
    lengths = [len(ids) for ids in tokenizer.encode(texts)]
    seconds = time.process_time() - began
    mean, error = statistics.mean(lengths), statistics.stdev(lengths) / len(lengths) ** 0.5
    text_bytes = sum(len(text.encode()) for text in texts)
    console.print(
        f"sample of {len(texts):,} documents: {mean:.0f} +- {error:.0f} tokens each, "
        f"{text_bytes / sum(lengths):.2f} bytes per token, {sum(lengths) / seconds:,.0f} tokens/s per core"
    )
    return replaced(
        facts,
        f"measured on {args.sample.name}",
        bytes_per_token=text_bytes / sum(lengths),
        text_bytes=text_bytes / len(texts) * facts["documents"].value,
        tokenize_rate=sum(lengths) / seconds,
    )


def words(options: Mapping[str, object]) -> list[str]:
    """Options of a command; those that are None are left out."""
    return [str(word) for option in options.items() if option[1] is not None for word in option]


def plan(args: argparse.Namespace, costs: Costs) -> list[tuple[str, str, list[str]]]:
    """The stages to run: name, file that it makes, command. Text is counted once for all models."""
    counts, shards = args.counts or str(args.out / "counts"), f"{args.c4}/{TRAIN}"
    counted = {"-o": counts, "--tokenizer": args.tokenizer, "--order": args.orders[-1]}
    resources = {
        "--ram": gigabytes(args.ram),
        "--disk": gigabytes(args.disk or costs.disk_bytes),
        "--threads": args.threads,
    }
    if args.counts_on == "machine":
        own = {**counted, **resources, "--work": args.out / "counts.work"}
        count = ["rescore", "lm", "count", shards, *words(own)]
    else:
        submit = [*words({"--master": args.master}), *(word for one in args.spark_conf for word in ("--conf", one))]
        script = str(Path(__file__).resolve().with_name("count_spark.py"))
        count = ["spark-submit", *submit, script, shards, *words({**counted, "--partitions": costs.partitions})]
    stages = [("counts", f"{counts}/counts.json", count)]
    for order in args.orders:
        model = args.out / f"{order}gram.ngram"
        own = {
            "-o": model,
            "--tokenizer": args.tokenizer,
            "--order": order,
            "--min-count": ",".join(args.min_count.split(",")[:order]),
            "--max-ngrams": args.max_ngrams,
            **resources,
            "--work": args.out / f"{order}gram.work",
            "--arpa": args.out / f"{order}gram.arpa.gz",
            "--heldout": f"{args.c4}/{VALID}" if glob.glob(f"{glob.escape(args.c4)}/{VALID}") else None,
        }
        stages.append((f"{order}-gram model", str(model), ["rescore", "lm", "build", counts, *words(own)]))
    return stages


def show(
    facts: Facts, costs: Costs, stages: list[tuple[str, str, list[str]]], args: argparse.Namespace, console: Console
) -> None:
    table = Table(title="figures")
    for name in ("figure", "value", "source"):
        table.add_column(name)
    for name, fact in facts.items():
        table.add_row(name.replace("_", " "), fact.text, fact.source)
    console.print(table)
    machine = f"Spark, {args.cores} cores" if args.counts_on == "spark" else f"one machine, {args.threads} threads"
    table = Table(title=f"cost, {machine}")
    for name in ("", "low", "high"):
        table.add_column(name, justify="right" if name else "left")
    for name, low, high in costs.rows(args.counts_on == "spark"):
        table.add_row(name, low, high)
    console.print(table)
    for name, made, command in stages:
        done = " (exists)" if Path(made).exists() else ""
        console.print(f"{name}{done}:\n  {shlex.join(command)}")


def check_programs(args: argparse.Namespace) -> None:
    for program in ("rescore", *(["spark-submit"] if args.counts_on == "spark" else [])):
        if not shutil.which(program):
            raise SystemExit(
                f"{program}: not found on the path; install the "
                f"package{' with its extra spark' if program != 'rescore' else ''}"
            )


def check_disk(args: argparse.Namespace, costs: Costs, console: Console) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    free, needed = shutil.disk_usage(args.out).free, args.disk or costs.disk_bytes
    if free < needed:
        console.print(f"[yellow]{args.out} has {free / 1e9:,.0f} GB free; the build may need {needed / 1e9:,.0f} GB[/]")


def agreed() -> bool:
    try:
        return input("go on? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def run(name: str, made: str, command: list[str], console: Console) -> None:
    if Path(made).exists():
        console.print(f"{name}: {made} exists, skipped")
        return
    began = time.monotonic()
    if status := subprocess.run(command).returncode:
        raise SystemExit(f"{name}: failed with exit status {status}; run this script again to resume")
    console.print(f"{name}: {(time.monotonic() - began) / 3600:.1f} h")


if __name__ == "__main__":
    sys.exit(main())
