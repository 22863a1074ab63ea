"""What `rescore bench search` does."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from rescore.decode import bench_search
from rescore.decode.bench_lattices import Lattices, lattices_of
from rescore.decode.bench_search import ANCHOR, OURS, OURS_EPSILON, PYTHON, REPEATING, TABLE_12, TABLE_13, Engines
from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.draft import Rescorer
from rescore.decode.openfst.search import OPTIMISED, Unavailable, compile_search
from rescore.decode.replays.standard import check_models
from rescore.lattice.dump import Dump

SLOTS = max(slots for slots, _, _ in TABLE_13)
WIDTH = max(width for _, width, _ in TABLE_13)
SHORT = {OURS: "ours", OURS_EPSILON: "ours, eps", ANCHOR: "C++ phi", REPEATING: "C++ eps", PYTHON: "pywrapfst"}


def call(args: argparse.Namespace) -> None:
    if args.json:
        output.check_place(args.json)
    dump = Dump.open(args.dump, allow_inexact=True)
    model = models.open_model(args.lm, dump)
    check_models(dump, Rescorer(model))
    lattices = lattices_of(dump, model, count=args.lattices, slots=SLOTS, width=WIDTH, seed=args.seed)
    left_out = None
    with tempfile.TemporaryDirectory() as folder, output.progress_bar() as bar:
        cells = bar.add_task("lattice sizes", total=len({*TABLE_12, *TABLE_13}))
        try:
            program = compile_search(Path(folder, "openfst_search"), OPTIMISED)
        except Unavailable as reason:
            program, left_out = None, str(reason)
        engines = Engines.of_model(model, args.alpha, Path(folder), program)
        rows = bench_search.bench_search(engines, lattices, rounds=args.rounds, advance=lambda: bar.advance(cells))
    report = {
        "machine": bench_search.settled(),
        "settings": {
            "dump": str(args.dump), "lm": str(args.lm), "ngrams": model.info()["ngrams"], "alpha": args.alpha, "rounds": args.rounds, "seed": args.seed,
            "lattices": lattices.sausage.batch_size, "rows_joined": lattices.parts, "candidates_drawn": lattices.drawn, "left_out": left_out,
        },
        "cells": rows,
    }
    output.report(args, report, *tables(report, lattices, output.width()))


def tables(report: dict[str, Any], lattices: Lattices, width: int) -> list[RenderableType]:
    facts, settings = report["machine"], report["settings"]
    parts: list[RenderableType] = [f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}, pynini {facts['pynini']}, libfst-dev {facts['libfst-dev']}; one thread"]
    parts.append(f"{settings['lattices']} lattices of {settings['dump']}, {sum(settings['ngrams']):,} n-grams, alpha {settings['alpha']:g}; microseconds of a lattice")
    if lattices.parts > 1:
        parts.append(f"lattices of {SLOTS} slots are {lattices.parts} rows of the dump, joined")
    if lattices.drawn:
        parts.append(f"the dump has {WIDTH - lattices.drawn} candidates a slot: the last {lattices.drawn} of {WIDTH} are drawn from the model")
    if settings["left_out"]:
        parts.append(f"C++ OpenFst left out: {settings['left_out']}")
    for title, cells in (("p best of 8 x 16 (table 12)", TABLE_12), ("the best one by slots x candidates (table 13)", TABLE_13)):
        rows = [next(row for row in report["cells"] if (row["slots"], row["candidates"], row["paths"]) == cell) for cell in cells]
        labels = [f"p = {row['paths']}" if cells is TABLE_12 else f"{row['slots']} x {row['candidates']}" for row in rows]
        parts += ["", title, *column_tables("", labels, columns(rows), width=width)]
    return parts


def columns(rows: list[dict[str, Any]]) -> list[Column]:
    found = []
    for name in rows[0]["engines"]:
        own = [row["engines"][name] for row in rows]
        found += [Column(SHORT[name], [f"{one['median_us']:.1f}" for one in own]), Column("p99", [f"{one['p99_us']:.1f}" for one in own])]
        if "times_ours" in own[0]:
            found.append(Column("x", [f"{one['times_ours']:.1f}" for one in own]))
    return found
