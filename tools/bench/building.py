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
import os
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from markdown_tables import show_header, show_row

from rescore.decode.bench.results import machine
from rescore.decode.cli.values import AMOUNT, counts
from rescore.lattice.atomic import atomic_file
from rescore.lm.model.ngram import NGram

TAIL = 2_000  # bytes shown of a failed build's output
STATES = 200  # whose probabilities are summed
POLL_SECONDS = 0.05
POLLS_PER_WALK = 5  # polls per walk of the folder
UNIT = 1024  # bytes, of the sizes in /proc/PID/status
COLUMNS = (
    *("seconds", "CPU", "tokens/s", "exponent", "RSS MB", "anonymous MB"),
    *("disk MB", "n-grams", "B/n-gram"),
)


def main() -> None:
    args = arguments()
    report: dict[str, Any] = {"machine": machine("rescore", "numpy"), "command": args.rescore, "runs": []}
    with tempfile.TemporaryDirectory(prefix="bench-build-", dir=args.folder) as folder:
        for inputs in plan(args, Path(folder)):
            report["runs"].append(measure(args, inputs, Path(folder)))
            print(f"{report['runs'][-1]['tokens']:,} tokens: {report['runs'][-1]['seconds']:.1f} s")
    show(report)
    if args.json:
        with atomic_file(args.json) as file:
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


def show(report: dict[str, Any]) -> None:
    """Prints the figures of the runs, and the seconds of their stages: one row per stage, one column per run."""
    print(", ".join(f"{name} {value}" for name, value in report["machine"].items()))
    show_header("tokens", COLUMNS)
    before = None
    for run in report["runs"]:
        exponent = "-"
        if before:
            grown = math.log(run["seconds"] / before["seconds"]) / math.log(run["tokens"] / before["tokens"])
            exponent = f"{grown:.3f}"
        ngrams = sum(run["ngrams"])
        times = (f"{run['seconds']:.1f}", f"{run['cpu_seconds']:.1f}", f"{run['tokens_per_second']:,.0f}", exponent)
        megabytes = (f"{run[name] / 1e6:,.0f}" for name in ("rss_bytes", "anonymous_bytes", "disk_bytes"))
        show_row(f"{run['tokens']:,}", (*times, *megabytes, f"{ngrams:,}", run["model_bytes"] / ngrams))
        before = run
    print()
    show_header("stage", (f"{run['tokens']:,}" for run in report["runs"]))
    for name in dict.fromkeys(stage["stage"] for run in report["runs"] for stage in run["stages"]):
        seconds = (sum(one["seconds"] for one in run["stages"] if one["stage"] == name) for run in report["runs"])
        show_row(name, (f"{value:.1f}" for value in seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Resources used by a command.

    seconds          wall-clock time; cpu_seconds: CPU time of all processes
    rss_bytes        peak sum of resident memory over all processes, mapped files included; shared memory counts once
                     per process
    anonymous_bytes  the same without mapped files
    highest_bytes    largest VmHWM of a single process: peak resident memory, also between polls
    disk_bytes       peak allocated size of the folder
    status           exit status, -N if ended by signal N
    """

    seconds: float
    cpu_seconds: float
    rss_bytes: int
    anonymous_bytes: int
    highest_bytes: int
    disk_bytes: int
    status: int


def watch(command: Sequence[str], folder: Path, log: BinaryIO) -> Use:
    """Runs a command and measures it with all its child processes. Its files are in `folder`; standard output and error
    go to `log`.

    An interrupt ends the command.
    """
    rss = anonymous = highest = disk = polls = 0
    before, began = _cpu_seconds(), time.monotonic()
    with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            while process.poll() is None:
                sizes = [memory(pid) for pid in family(process.pid)]
                rss = max(rss, sum(size.get("VmRSS", 0) for size in sizes))
                anonymous = max(anonymous, sum(size.get("RssAnon", 0) + size.get("RssShmem", 0) for size in sizes))
                highest = max(highest, *(size.get("VmHWM", 0) for size in sizes))
                if polls % POLLS_PER_WALK == 0:
                    disk = max(disk, allocated(folder))
                polls += 1
                time.sleep(POLL_SECONDS)
        except BaseException:
            process.kill()
            raise
    return Use(
        seconds=time.monotonic() - began,
        cpu_seconds=_cpu_seconds() - before,
        rss_bytes=rss,
        anonymous_bytes=anonymous,
        highest_bytes=highest,
        disk_bytes=max(disk, allocated(folder)),
        status=process.returncode,
    )


def family(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                yield from family(int(child))
    except (OSError, ValueError):  # the process has ended
        return


def memory(pid: int) -> Mapping[str, int]:
    """VmRSS, VmHWM, RssAnon, RssFile and RssShmem of a process in bytes; empty if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    sizes = (line.split() for line in lines if line.startswith(("VmRSS", "VmHWM", "Rss")))
    return {name.rstrip(":"): int(size) * UNIT for name, size, _ in sizes}


def allocated(folder: Path) -> int:
    """Bytes on disk of the files under a folder; short-lived files may be missed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _cpu_seconds() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
