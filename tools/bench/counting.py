"""Compares counting engines: the same windows, grouped and counted from Parquet to Parquet, with results checked.

    python tools/bench/counting.py TOKENS.npy... --vocab-size V --end-of-text ID [--order N] [--ram 4G] [--threads 2]
        [--engines rescore,duckdb,polars,spark] [--json FILE]

The windows (`rescore.lm.windows`) of all tokens are packed into one 64-bit word each and written to a Parquet file.
Each engine reads it, groups, counts and writes, in a separate process. Seconds are the time of that statement; the time
to start the engine is a separate column. Peak memory is the PSS of the process and its children, polled every 200 ms; a
peak must last for two polls, since a process that is being started shows its parent's memory a second time. CPU seconds
cover all these processes. The number of distinct windows and the sum of counts must agree, or nothing is printed.

rescore reads the tokens, makes the windows itself, and writes its own interchange format. rescore, DuckDB and Spark
respect --ram (in Spark the JVM's heap) and spill to disk; Polars has no such setting.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from rescore.decode.bench.machine import version
from rescore.lm.counts import CountOptions
from rescore.lm.counts_files import windows_of, write_counts
from rescore.lm.pieces import plan
from rescore.lm.sources import TokenSource
from rescore.lm.staged import Resources, StagedBuild
from rescore.lm.windows import Packing, join
from rescore.lm.work import WorkFolder

QUERY = "SELECT key, count(*) AS count FROM {source} GROUP BY key"
UNITS = {"M": 1 << 20, "G": 1 << 30}


def duckdb(source: Path, target: Path, work: Path, memory: int, threads: int) -> float:
    import duckdb

    database = duckdb.connect()
    database.execute(
        f"SET memory_limit='{memory >> 20}MiB'; SET threads={threads}; SET temp_directory='{work}'; "
        "SET preserve_insertion_order=false"
    )
    began = time.perf_counter()
    query = QUERY.format(source=f"'{source}'")
    database.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    return time.perf_counter() - began


def polars(source: Path, target: Path, work: Path, memory: int, threads: int) -> float:
    os.environ["POLARS_MAX_THREADS"] = str(threads)
    import polars

    began = time.perf_counter()
    polars.scan_parquet(source).group_by("key").agg(polars.len().cast(polars.Int64).alias("count")).sink_parquet(
        target, compression="zstd", engine="streaming"
    )
    return time.perf_counter() - began


def spark(source: Path, target: Path, work: Path, memory: int, threads: int) -> float:
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.memory": f"{memory >> 20}m",
        "spark.local.dir": str(work),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "32",
        "spark.sql.files.maxPartitionBytes": "16m",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{threads}]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.read.parquet(str(source)).createOrReplaceTempView("windows")
    began = time.perf_counter()
    session.sql(QUERY.format(source="windows")).write.option("compression", "zstd").parquet(str(target))
    seconds = time.perf_counter() - began
    session.stop()
    return seconds


def native(source: Path, target: Path, work: Path, memory: int, threads: int) -> float:
    """rescore, from the tokens; it makes the windows itself."""
    packing = Packing(**json.loads(source.with_name("packing.json").read_text()))
    options = CountOptions(order=packing.order, vocab_size=packing.vocab_size, end_of_text=packing.end_of_text)
    pieces = plan(sorted(source.parent.glob("*.npy")), vocab_size=packing.vocab_size)
    began = time.perf_counter()
    tokens = TokenSource(pieces, vocab_size=packing.vocab_size, end_of_text=packing.end_of_text)
    runs = StagedBuild(WorkFolder(work / "build"), options, Resources(memory_bytes=memory, threads=threads)).runs(
        tokens
    )
    write_counts(
        target,
        windows_of(runs, options),
        order=packing.order,
        vocab_size=packing.vocab_size,
        end_of_text=packing.end_of_text,
    )
    return time.perf_counter() - began


ENGINES: dict[str, Callable[[Path, Path, Path, int, int], float]] = {
    "rescore": native,
    "duckdb": duckdb,
    "polars": polars,
    "spark": spark,
}
PACKAGES = {"rescore": "rescore", "duckdb": "duckdb", "polars": "polars", "spark": "pyspark"}


def main() -> None:
    args = arguments()
    if args.child:
        engine, source, target, work = args.child
        print(json.dumps({"seconds": ENGINES[engine](Path(source), Path(target), Path(work), args.ram, args.threads)}))
        return
    console = Console()
    with tempfile.TemporaryDirectory(dir=args.work) as name:
        folder = Path(name)
        with console.status("windows"):
            windows = write_windows(args, folder / "windows.parquet")
        rows = []
        for engine in args.engines:
            with console.status(engine):
                rows.append(measure(engine, folder, windows, args))
    answers = {(row["distinct"], row["total"]) for row in rows}
    if answers != {(rows[0]["distinct"], windows)}:
        raise SystemExit(
            "the engines disagree: "
            + "; ".join(f"{row['engine']} {row['distinct']} windows, sum {row['total']} of {windows}" for row in rows)
        )
    show(rows, windows, args, console)
    if args.json:
        args.json.write_text(
            json.dumps(
                {
                    "windows": windows,
                    "load": os.getloadavg()[0],
                    "memory": args.ram,
                    "threads": args.threads,
                    "engines": rows,
                },
                indent=2,
            )
            + "\n"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokens", nargs="*", type=Path, metavar="TOKENS.npy")
    parser.add_argument("--vocab-size", type=int, metavar="V")
    parser.add_argument("--end-of-text", type=int, metavar="ID")
    parser.add_argument("--order", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument("--ram", type=amount, default="4G", metavar="BYTES", help="e.g. 1G (default: 4G)")
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
    parser.add_argument(
        "--engines",
        type=lambda text: text.split(","),
        default=list(ENGINES),
        metavar="A,B,..",
        help=f"default: {','.join(ENGINES)}",
    )
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="folder for windows and spilled data (default: the system's)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not args.child and not (args.tokens and args.vocab_size and args.end_of_text is not None):
        parser.error("expected TOKENS.npy.., --vocab-size and --end-of-text")
    if unknown := set(args.engines) - set(ENGINES):
        parser.error(f"--engines: expected some of {', '.join(ENGINES)}, got {sorted(unknown)[0]}")
    return args


def amount(text: str) -> int:
    try:
        return int(float(text[:-1]) * UNITS[text[-1]])
    except (ValueError, KeyError, IndexError):
        raise argparse.ArgumentTypeError(f"expected a size such as 512M or 4G, got {text!r}") from None


def write_windows(args: argparse.Namespace, path: Path) -> int:
    """Writes the windows, one token file at a time, and returns their number."""
    packing = Packing(order=args.order, vocab_size=args.vocab_size, end_of_text=args.end_of_text)
    if packing.words > 1:
        raise SystemExit(
            f"--order: expected windows that fit into 64 bits, got {packing.order} tokens of {packing.bits} bits"
        )
    windows = 0
    path.with_name("packing.json").write_text(
        json.dumps({"order": packing.order, "vocab_size": packing.vocab_size, "end_of_text": packing.end_of_text})
    )
    with pq.ParquetWriter(path, pa.schema([("key", pa.int64())]), compression="zstd") as writer:
        for number, tokens in enumerate(args.tokens):
            stream = join([np.load(tokens, mmap_mode="r")], packing.vocab_size, packing.end_of_text)
            np.save(path.with_name(f"{number:05}.npy"), stream)
            keys = packing.keys(stream)[0]
            writer.write_table(pa.table({"key": keys}), row_group_size=1 << 20)
            windows += len(keys)
    return windows


def measure(engine: str, folder: Path, windows: int, args: argparse.Namespace) -> dict:
    """The figures of one engine, run in a separate process so that its memory can be measured."""
    source, target, work = folder / "windows.parquet", folder / f"{engine}.parquet", folder / f"{engine}-work"
    work.mkdir()
    command = [
        sys.executable,
        __file__,
        "--ram",
        f"{args.ram >> 20}M",
        "--threads",
        str(args.threads),
        "--child",
        engine,
        *map(str, (source, target, work)),
    ]
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak, before, cpu = 0, 0, 0.0
        while process.poll() is None:
            resident, used = tree_usage(process.pid)
            peak, cpu = max(peak, min(before, resident)), max(cpu, used)
            before = resident
            time.sleep(0.2)
        wall = time.perf_counter() - began
        out = process.stdout.read() if process.stdout else ""
    if process.returncode:
        raise SystemExit(f"{engine}: ended with status {process.returncode}")
    seconds = json.loads(out.splitlines()[-1])["seconds"]
    distinct, total = answer(target)
    row = {
        "engine": engine,
        "version": version(PACKAGES[engine]),
        "seconds": seconds,
        "start_seconds": wall - seconds,
        "cpu_seconds": cpu,
        "tokens_per_second": windows / seconds,
        "peak_bytes": peak,
        "output_bytes": size(target),
        "distinct": distinct,
        "total": total,
    }
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    return row


def answer(path: Path) -> tuple[int, int]:
    """Number of rows and sum of counts."""
    distinct = total = 0
    for file in sorted(path.glob("*.parquet")) if path.is_dir() else [path]:
        counts = pq.read_table(file, columns=["count"])["count"].to_numpy()
        distinct, total = distinct + len(counts), total + int(counts.sum())
    return distinct, total


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.parquet")) if path.is_dir() else path.stat().st_size


def tree_usage(pid: int) -> tuple[int, float]:
    """Bytes in memory (PSS) and CPU seconds of a process and its descendants."""
    resident, seconds = 0, 0.0
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        )  # from the third field on, see proc(5)
        shares = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        resident = int(shares["Pss"].split()[0]) << 10
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                more, longer = tree_usage(int(child))
                resident, seconds = resident + more, seconds + longer
    except OSError:
        pass  # the process has ended
    return resident, seconds


def show(rows: list[dict], windows: int, args: argparse.Namespace, console: Console) -> None:
    table = Table(
        title=(
            f"{windows:,} windows of {args.order} tokens, {rows[0]['distinct']:,} distinct; "
            f"{args.ram >> 20:,} MiB, {args.threads} threads"
        )
    )
    for name in ("engine", "s", "M tokens/s", "to start, s", "CPU s", "peak GB", "output MB"):
        table.add_column(name, justify="left" if name == "engine" else "right")
    for row in rows:
        table.add_row(
            f"{row['engine']} {row['version']}",
            f"{row['seconds']:.1f}",
            f"{row['tokens_per_second'] / 1e6:.2f}",
            f"{row['start_seconds']:.1f}",
            f"{row['cpu_seconds']:.0f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
            f"{row['output_bytes'] / 1e6:.0f}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
