"""Runs `rescore bench batch`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rescore.decode.bench import batch as bench_batch
from rescore.decode.bench.allocations.counter import PreloadUnavailable
from rescore.decode.bench.batch import AGAIN, ALLOCATIONS, OVERHEAD
from rescore.decode.bench.calls import CALLS
from rescore.decode.bench.lattices import BenchLattices
from rescore.decode.bench.results import BenchReport, BenchRow, bench_machine
from rescore.decode.bench.search import NATIVE, OURS, SLOTS, WIDTH
from rescore.decode.cli.actions import bench_tables, output
from rescore.decode.cli.actions.bench_inputs import made_of, open_inputs
from rescore.decode.cli.actions.bench_tables import Figure, TablePart, of_engines
from rescore.decode.cli.actions.columns import Column

COUNTED = 32  # lattices whose allocations are counted
LEAST_MOST = (Figure(name="min", header="", form="d"), Figure(name="max", header="most", form="d"))


def call(args: argparse.Namespace) -> None:
    model, _, source = open_inputs(args)
    lattices = source(count=2 * args.most, slots=SLOTS, width=WIDTH)
    batch, histories = lattices.sausage, lattices.histories
    threads = args.threads or [1, 2]
    sizes = [1 << i for i in range(args.most.bit_length()) if 1 << i <= batch.batch_size]
    left_out, counted = None, slice(0, min(COUNTED, batch.batch_size))
    with tempfile.TemporaryDirectory() as folder, output.progress_bar() as bar:
        task = bar.add_task("batches", total=len(CALLS) * len(threads) * len(sizes))
        rows = list(
            bench_batch.throughput(
                model,
                args.alpha,
                batch,
                histories,
                sizes=sizes,
                threads=threads,
                rounds=args.rounds,
                advance=lambda: bar.advance(task),
            )
        )
        rows += bench_batch.overhead(model, args.alpha, batch, histories, args.rounds)
        try:
            for number in threads:
                rows += bench_batch.allocations(
                    args.lm, args.alpha, batch[counted], histories[counted], threads=number, folder=Path(folder)
                )
        except PreloadUnavailable as reason:
            left_out = f"allocations: {reason}"
    report = BenchReport(
        bench="batch",
        machine=bench_machine("rescore", "numpy"),
        settings={
            "dump": str(args.dump or args.text),
            "lm": str(args.lm),
            "ngrams": model.info()["ngrams"],
            "alpha": args.alpha,
            "lattices": batch.batch_size,
            "candidates_drawn": lattices.drawn,
            "rounds": args.rounds,
            "threads": threads,
            "seed": args.seed,
            "left_out": left_out,
        },
        checked=(
            "paths and trees of every batch size and number of threads with those of single lattices, bit for bit",
        ),
        rows=tuple(rows),
    )
    bench_tables.finish(args, report, notes(report, lattices), parts(report))


def notes(report: BenchReport, lattices: BenchLattices) -> list[str]:
    settings = report.settings
    found = [
        f"{settings['lm']}: {sum(settings['ngrams']):,} n-grams; {settings['lattices']} lattices of {SLOTS} x {WIDTH} "
        f"of {settings['dump']}, alpha {settings['alpha']:g}",
        *filter(None, [made_of(lattices)]),
        f"microseconds per lattice, wall-clock time, fastest of {settings['rounds']} rounds",
    ]
    return found + [f"left out: {settings['left_out']}"] * bool(settings["left_out"])


def parts(report: BenchReport) -> list[TablePart]:
    found = []
    for name in CALLS:
        rows = report.group(name)
        sizes = list(dict.fromkeys(row.case["batch"] for row in rows))
        columns = []
        for threads in dict.fromkeys(row.case["threads"] for row in rows):
            own: list[BenchRow] = [row for row in rows if row.case["threads"] == threads]
            columns.append(
                Column(
                    f"{threads} thread{'s' * (threads != 1)}", [f"{row.engines[OURS]['mean_us']:.1f}" for row in own]
                )
            )
            columns.append(Column("lattices/s", [f"{row.engines[OURS]['lattices_per_s']:,.0f}" for row in own]))
        found.append(TablePart(title=name, header="batch", labels=[str(size) for size in sizes], columns=columns))
    short = {NATIVE: "native call", AGAIN: "memory reused"}
    overhead = report.group(OVERHEAD)
    found.append(of_engines(OVERHEAD, "", [str(row.case["call"]) for row in overhead], overhead, short))
    if asked := report.group(ALLOCATIONS):
        found.append(
            of_engines(
                ALLOCATIONS,
                "",
                [f"{row.case['call']}, {row.case['threads']} threads" for row in asked],
                asked,
                short,
                LEAST_MOST,
            )
        )
    return found
