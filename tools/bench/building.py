"""Time, memory and disk of `rescore lm build`, stage by stage. Linux only.

    python tools/bench/building.py real train.npy --vocab-size 50257 --end-of-text 50256 --max-ngrams 3M
    python tools/bench/building.py sampled corpus --tokens 125M,250M,500M,1G --ram 4G

real     builds a model of the given token files
sampled  builds models of growing parts of a corpus from sample_corpus.py: time and disk should grow linearly with the
         tokens, and memory should not grow

columns  tokens      read
         seconds     wall-clock time; CPU: of all cores
         tokens/s    tokens divided by seconds
         exponent    b of seconds ~ tokens^b from the row above to this one; 1 is linear
         RSS         peak of resident memory of all processes, mapped files included; anonymous: without them
         disk        peak of the work folder
         B/n-gram    bytes of the model per n-gram

A second table has the seconds of each stage, as reported by the build. Every model is opened and verified, and the
probabilities of some of its states are summed. --rescore names another command to run as rescore.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from process_watch import watch
from rich.console import Console
from rich.table import Table

from rescore.decode.bench.results import machine
from rescore.decode.cli.screen import console as terminal
from rescore.decode.cli.values import AMOUNT, counts
from rescore.lattice.atomic import replacing
from rescore.lm.model.ngram import NGram

TAIL = 2_000  # bytes shown of a failed build's output
STATES = 200  # whose probabilities are summed


def main() -> None:
    args = arguments()
    console = terminal()
    report: dict[str, Any] = {"machine": machine("rescore", "numpy"), "command": args.rescore, "runs": []}
    with tempfile.TemporaryDirectory(prefix="bench-build-", dir=args.folder) as folder:
        for inputs in plan(args, Path(folder)):
            report["runs"].append(measure(args, inputs, Path(folder)))
            console.print(f"{report['runs'][-1]['tokens']:,} tokens: {report['runs'][-1]['seconds']:.1f} s")
    show(report, console)
    if args.json:
        with replacing(args.json) as file:
            file.write(json.dumps(report, indent=2).encode() + b"\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="real|sampled")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--order", type=int, default=4, help="default: 4")
    common.add_argument("--min-count", type=counts, metavar="C1,C2,..", help="default: all n-grams")
    common.add_argument("--max-ngrams", type=AMOUNT, metavar="N", help="default: no pruning")
    common.add_argument("--ram", default="4G", help="default: 4G")
    common.add_argument("--disk", default="100G", help="default: 100G")
    common.add_argument("--threads", type=int, default=2, help="default: 2")
    common.add_argument("--folder", type=Path, help="folder for work folders and models (default: a temporary one)")
    common.add_argument(
        "--rescore",
        default=f"{shlex.quote(sys.executable)} -m rescore.decode.cli",
        metavar="COMMAND",
        help="default: that of this Python",
    )
    common.add_argument("--json", type=Path, help="write the figures as JSON")
    real = kinds.add_parser("real", parents=[common], help="a model of token files")
    real.add_argument("inputs", nargs="+", type=Path, metavar="TOKENS.npy")
    real.add_argument("--vocab-size", type=int, required=True, metavar="V")
    real.add_argument("--end-of-text", type=int, required=True, metavar="ID")
    sampled = kinds.add_parser("sampled", parents=[common], help="models of growing parts of a sampled corpus")
    sampled.add_argument("corpus", type=Path, metavar="DIR")
    sampled.add_argument("--tokens", type=sizes, required=True, metavar="N1,N2,..", help="e.g. 125M,250M,500M,1G")
    return parser.parse_args()


def sizes(text: str) -> list[int]:
    return [AMOUNT(part) for part in text.split(",")]


def plan(args: argparse.Namespace, folder: Path) -> list[list[Path]]:
    """The inputs of each run. Sets the vocabulary in `args` for a sampled corpus."""
    if args.kind == "real":
        return [args.inputs]
    try:
        made = json.loads((args.corpus / "corpus.json").read_text())
    except FileNotFoundError:
        raise SystemExit(f"{args.corpus}: expected a folder of sample_corpus.py, got none with a corpus.json") from None
    args.vocab_size, args.end_of_text = made["vocab_size"], made["end_of_text"]
    return [part(args.corpus, tokens, folder) for tokens in args.tokens]


def part(corpus: Path, tokens: int, folder: Path) -> list[Path]:
    """The first tokens of a corpus: whole shards, and a part of the next, written to `folder`."""
    paths, left = [], tokens
    for path in sorted(corpus.glob("shard-*.npy")):
        shard = np.load(path, mmap_mode="r")
        if left < len(shard):
            path = folder / f"{path.stem}-{left}.npy"
            np.save(path, shard[:left])
        paths.append(path)
        left -= min(left, len(shard))
        if not left:
            return paths
    raise SystemExit(
        f"{corpus}: expected at least {tokens} tokens, got {tokens - left}; make more with sample_corpus.py"
    )


def measure(args: argparse.Namespace, inputs: list[Path], folder: Path) -> dict[str, Any]:
    """Runs one build, removes its files and returns its figures."""
    out, work, figures, log = (folder / name for name in ("lm.ngram", "work", "build.json", "build.log"))
    options = {
        "--vocab-size": args.vocab_size,
        "--end-of-text": args.end_of_text,
        "--order": args.order,
        "--min-count": args.min_count and ",".join(map(str, args.min_count)),
        "--max-ngrams": args.max_ngrams,
        "--ram": args.ram,
        "--disk": args.disk,
        "--threads": args.threads,
        "--work": work,
        "--json": figures,
    }
    given = [str(word) for option in options.items() if option[1] is not None for word in option]
    command = [*shlex.split(args.rescore), "lm", "build", *map(str, inputs), "-o", str(out), *given]
    work.mkdir()
    with open(log, "wb") as file:
        use = watch(command, work, file)
    if use.status:
        raise SystemExit(
            f"{shlex.join(command)}: exit status {use.status}\n{log.read_bytes()[-TAIL:].decode(errors='replace')}"
        )
    report = json.loads(figures.read_text())
    if not isinstance(report.get("stages"), list):
        raise SystemExit(f"{shlex.join(command)}: expected a list `stages` in the JSON, got {sorted(report)}")
    ngrams = check(out, args.max_ngrams)
    tokens = sum(len(np.load(path, mmap_mode="r")) for path in inputs)
    model_bytes = out.stat().st_size
    shutil.rmtree(work, ignore_errors=True)
    out.unlink()
    return {
        "tokens": tokens,
        **dataclasses.asdict(use),
        "tokens_per_second": tokens / use.seconds,
        "ngrams": ngrams,
        "model_bytes": model_bytes,
        "memory": args.ram,
        "threads": args.threads,
        "stages": report["stages"],
    }


def check(path: Path, max_ngrams: int | None) -> list[int]:
    """The number of n-grams of each order; SystemExit if there are too many or probabilities do not sum to 1."""
    model = NGram.open(path, verify=True)
    info = model.info()
    if max_ngrams is not None and info["arcs"] > max_ngrams:
        raise SystemExit(f"{path}: expected at most {max_ngrams} n-grams, got {info['arcs']}")
    for state in np.linspace(0, info["states"] - 1, STATES).astype(int).tolist():
        total = float(np.exp(-model.distribution(state).astype(np.float64)).sum())
        if abs(total - 1) > 1e-4:
            raise SystemExit(f"{path}: expected the probabilities in state {state} to sum to 1, got {total:.6g}")
    return info["ngrams"]


def show(report: dict[str, Any], console: Console) -> None:
    """Prints the figures of the runs, and the seconds of their stages."""
    console.print(", ".join(f"{name} {value}" for name, value in report["machine"].items()), soft_wrap=True)
    names = (
        "tokens",
        "seconds",
        "CPU",
        "tokens/s",
        "exponent",
        "RSS MB",
        "anonymous MB",
        "disk MB",
        "n-grams",
        "B/n-gram",
    )
    table = Table(*names, box=None)
    before = None
    for run in report["runs"]:
        exponent = (
            math.log(run["seconds"] / before["seconds"]) / math.log(run["tokens"] / before["tokens"])
            if before
            else None
        )
        ngrams = sum(run["ngrams"])
        table.add_row(
            f"{run['tokens']:,}",
            f"{run['seconds']:.1f}",
            f"{run['cpu_seconds']:.1f}",
            f"{run['tokens_per_second']:,.0f}",
            "-" if exponent is None else f"{exponent:.3f}",
            *(f"{run[name] / 1e6:,.0f}" for name in ("rss_bytes", "anonymous_bytes", "disk_bytes")),
            f"{ngrams:,}",
            f"{run['model_bytes'] / ngrams:.2f}",
        )
        before = run
    console.print(_right(table))
    console.print(_right(stage_table(report["runs"])))


def stage_table(runs: list[dict[str, Any]]) -> Table:
    """Seconds of each stage: one row per stage, one column per run."""
    table = Table("stage", *(f"{run['tokens']:,}" for run in runs), box=None)
    names = dict.fromkeys(stage["stage"] for run in runs for stage in run["stages"])
    for name in names:
        seconds = [sum(stage["seconds"] for stage in run["stages"] if stage["stage"] == name) for run in runs]
        table.add_row(name, *(f"{value:.1f}" for value in seconds))
    return table


def _right(table: Table) -> Table:
    for column in table.columns:
        column.justify = "right"
        column.no_wrap = True
    return table


if __name__ == "__main__":
    main()
