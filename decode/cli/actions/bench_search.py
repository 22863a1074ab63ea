"""Runs `rescore bench search`."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from rescore.decode.bench import equality as bench_equality
from rescore.decode.bench import search as bench_search
from rescore.decode.bench.lattices import BenchLattices
from rescore.decode.bench.openfst.search import OPTIMISED, OpenFstUnavailable, compile_search
from rescore.decode.bench.paper_latency import TABLE_12_MS, TABLE_13_MS
from rescore.decode.bench.results import BenchReport, BenchRow, bench_machine
from rescore.decode.bench.search import (
    ANCHOR,
    COLD_LATTICES,
    DISTINCT,
    HEADLINE,
    OURS,
    OURS_EPSILON,
    PYTHON,
    REPEATING,
    SWEEPS,
    TABLES,
    Engines,
    Question,
)
from rescore.decode.cli.actions import bench_tables, output
from rescore.decode.cli.actions.bench_inputs import Source, made_of, open_inputs
from rescore.decode.cli.actions.bench_tables import OF_ENGINES, TablePart, by_engine, of_engines, of_runs
from rescore.decode.cli.arguments import Misuse
from rescore.lattice.dump import Dump
from rescore.lattice.extras import remedy

JOINED, MOST_SLOTS = 4, 32  # limits of a lattice in the sweep: joined rows of a dump; slots around a text
PACKAGES = ("rescore", "numpy", "pynini")
SHORT = {
    OURS_EPSILON: "ours, eps",
    ANCHOR: "C++ phi",
    REPEATING: "C++ eps",
    DISTINCT: "C++ eps, distinct",
    PYTHON: "pywrapfst",
    bench_search.NATIVE: "native call",
}
SETTINGS = "settings of C++ OpenFst, PhiMatcher, 8 x 16, p = 16"


def call(args: argparse.Namespace) -> None:
    model, dump, source = open_inputs(args)
    if args.every_lattice and dump is None:
        raise Misuse("--every-lattice needs --dump")
    most_slots = JOINED * dump.slots if dump else MOST_SLOTS
    asked = bench_search.questions(
        tables=not args.headline,
        sizes=args.sweep,
        most_slots=most_slots,
        most_candidates=model.vocab_size,
        sweep_mb=args.cold,
    )
    lattices = lattices_for(asked, partial(source, count=args.lattices))
    rows: list[BenchRow] = []
    with tempfile.TemporaryDirectory() as name, output.progress_bar() as bar:
        folder = Path(name)
        program, left_out = compiled(args, folder)
        engines = Engines.of_model(
            model, args.alpha, folder, program, python=PYTHON_NAME not in args.without and has_python()
        )
        checked = [equality(engines, dump)] if args.every_lattice and dump else []
        task = bar.add_task("searches", total=args.repeat * len(asked))
        for run in range(1, args.repeat + 1):
            rows += bench_search.bench_search(
                engines, asked, lattices, rounds=args.rounds, run=run, advance=lambda: bar.advance(task)
            )
        if args.peer_settings and program:
            rows += bench_equality.peer_settings(
                engines, lattices[HEADLINE], folder, rounds=args.rounds, group=SETTINGS
            )
    report = BenchReport(
        bench="search",
        machine={**bench_machine(*PACKAGES), **bench_search.peer_versions()},
        settings={
            "dump": str(args.dump or args.text),
            "lm": str(args.lm),
            "ngrams": model.info()["ngrams"],
            "alpha": args.alpha,
            "lattices": args.lattices,
            "rounds": args.rounds,
            "cold_mb": args.cold,
            "repeat": args.repeat,
            "seed": args.seed,
            "peer_compiled": " ".join(OPTIMISED),
            "left_out": left_out or None,
        },
        checked=(
            *checked,
            "costs (to 1e-4 nats) and paths of engines with the same semantics, on every timed lattice"
            f"{'' if program else '; without C++ OpenFst'}",
        ),
        rows=tuple(rows),
    )
    bench_tables.finish(args, report, notes(report, lattices), parts(report))


CPP_NAME, PYTHON_NAME = "openfst", "pywrapfst"  # values of --without


def compiled(args: argparse.Namespace, folder: Path) -> tuple[Path | None, str]:
    """The compiled C++ program, and the peers left out with the reason."""
    left_out = [f"{name}: --without" for name in args.without]
    if PYTHON_NAME not in args.without and not has_python():
        left_out.append(f"pywrapfst: not installed ({remedy('pywrapfst')})")
    program = None
    if CPP_NAME not in args.without:
        try:
            program = compile_search(folder / "openfst_search", OPTIMISED)
        except OpenFstUnavailable as reason:
            left_out.append(f"C++ OpenFst: {reason}")
    return program, "; ".join(left_out)


def has_python() -> bool:
    return find_spec("pywrapfst") is not None


def lattices_for(asked: Sequence[Question], source: Source) -> dict[str, BenchLattices]:
    """Lattices of each group, only as large as its largest question needs: larger ones must be joined from rows and
    filled up.
    """
    sizes = {}
    for group in dict.fromkeys(question.group for question in asked):
        own = [question for question in asked if question.group == group]
        sizes[group] = max(one.slots for one in own), max(one.candidates for one in own)
    made = {(slots, width): source(slots=slots, width=width) for slots, width in set(sizes.values())}
    cold = {question.group for question in asked if question.sweep_mb}
    return {group: made[size].first(COLD_LATTICES) if group in cold else made[size] for group, size in sizes.items()}


def equality(engines: Engines, dump: Dump) -> str:
    with output.stages() as stage:
        lattices = bench_equality.every_lattice(engines, dump, stage)
    return (
        "costs (to 1e-4 nats) and paths of ours and C++ OpenFst, PhiMatcher, "
        f"on all {lattices:,} lattices of {dump.path}, p = {', '.join(map(str, bench_equality.PATHS))}"
    )


def notes(report: BenchReport, lattices: dict[str, BenchLattices]) -> list[str]:
    settings = report.settings
    found = [
        f"{settings['lm']}: {sum(settings['ngrams']):,} n-grams; lattices of {settings['dump']}, "
        f"alpha {settings['alpha']:g}; microseconds per lattice, CPU time of one thread, "
        f"fastest of {settings['rounds']} rounds"
    ]
    for group, own in lattices.items():
        found.append("; ".join(filter(None, [f"{group}: {own.sausage.batch_size} lattices", made_of(own)])))
    return found + [f"left out: {settings['left_out']}"] * bool(settings["left_out"])


def parts(report: BenchReport) -> list[TablePart]:
    found = []
    for group in dict.fromkeys(row.group for row in report.rows):
        runs = [
            report.group(group, run) for run in range(1, 1 + max(row.run for row in report.rows if row.group == group))
        ]
        if group == TABLES:
            for title, cells in (
                ("p best paths of 8 x 16 (table 12)", TABLE_12_MS),
                ("best path by slots x candidates (table 13)", TABLE_13_MS),
            ):
                rows = [
                    row
                    for cell in cells
                    for row in runs[0]
                    if (row.case["slots"], row.case["candidates"], row.case["paths"]) == cell
                ]
                found.append(
                    of_engines(
                        title,
                        "",
                        [
                            f"p = {row.case['paths']}"
                            if cells is TABLE_12_MS
                            else f"{row.case['slots']} x {row.case['candidates']}"
                            for row in rows
                        ],
                        rows,
                        SHORT,
                    )
                )
            continue
        labels = [label(row) for row in runs[0]]
        found.append(
            by_engine(group, "engine", runs[0][0], OF_ENGINES)
            if len(labels) == 1
            else of_engines(group, "", labels, runs[0], SHORT)
        )
        if len(runs) > 1 and OURS in runs[0][0].engines and ANCHOR in runs[0][0].engines:
            found.append(
                of_runs(f"{group}: x in {len(runs)} runs, of medians (of 99th percentiles)", labels, runs, SHORT)
            )
    return found


def label(row: BenchRow) -> str:
    case = row.case
    if row.group == SETTINGS:
        return str(case["setting"])
    if row.group not in (HEADLINE, *SWEEPS) and "paths" not in case:
        return f"{case['nodes']} nodes" if "nodes" in case else f"{case['samples']} paths"
    return f"{case['slots']} x {case['candidates']}, " + (
        f"p = {case['paths']}" if "paths" in case else f"{case['nodes']} nodes"
    )
