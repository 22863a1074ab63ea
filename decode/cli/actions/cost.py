"""Runs `rescore cost`."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.cli.arguments import Misuse, printable
from rescore.decode.cost import cost_inputs, paper_cost
from rescore.decode.cost.cost_model import (
    PLAIN,
    Clock,
    CostOptions,
    Precision,
    Roofline,
    Stopwatch,
    Way,
    accelerator,
)
from rescore.decode.cost.cost_tables import (
    BATCHES,
    Columns,
    Rows,
    batches_of,
    step_columns,
    step_rows,
    step_title,
    token_columns,
    token_rows,
)
from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.report.content import Cell


def call(args: argparse.Namespace) -> None:
    if args.paper:
        return paper(args)
    if args.model is None:
        raise Misuse("--model: expected a model's shape, or --paper for the paper's table")
    if not args.run and not args.way and not args.neural:
        raise Misuse("--run, --way, --neural: expected at least one of them, for the tokens per pass of drafters")
    if args.passes and args.gpu:
        raise Misuse("--passes replaces the machine: leave out --gpu")
    shape, ways = inputs(args)
    precision = Precision(parameter=args.parameter_bytes, cache=args.cache_bytes)
    clock = clock_of(args, precision)
    options = CostOptions(
        name=args.model, shape=shape, machine=args.gpu or "", clock=clock, length=args.length, precision=precision
    )
    report = {
        "model": {"name": args.model, **dataclasses.asdict(shape), "read_parameters": shape.read_parameters},
        "machine": machine(args, clock),
        "settings": {
            "length": args.length,
            "parameter_bytes": precision.parameter,
            "cache_bytes": precision.cache,
            "run": str(args.run) if args.run else None,
            "dump": args.dump,
        },
        "per_token": token_rows(options, ways),
        "forecasts": step_rows(options, ways, args.batch or batches_of(options, BATCHES)),
    }
    output.report(args, report, *tables(report, output.width()))


def inputs(args: argparse.Namespace) -> tuple[ModelShape, list[Way]]:
    """The model's shape with its heads, and every way to draft."""
    shape = cost_inputs.open_shape(args.model)
    ways = cost_inputs.read_ways(args.run, args.dump) if args.run else []
    slots = args.slots if args.slots is not None else max((way.slots for way in ways), default=0)
    ways = [dataclasses.replace(way, slots=slots if way.slots else 0) for way in ways]
    ways += [
        Way(name=name, tokens_per_pass=tokens, verified=verified, rows=rows, slots=slots)
        for name, tokens, verified, rows in args.way
    ]
    if args.neural:
        ways.append(neural(args, slots))
    names = [way.name for way in (PLAIN, *ways)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Misuse(f"--way {twice}: expected a name that no other way has")
    if slots and not shape.block_parameters and shape.parameters is None:
        shape = shape.with_block_heads(slots)
    return shape, ways


def neural(args: argparse.Namespace, slots: int) -> Way:
    """The paper's local rescoring: one draft of T tokens, each chosen by a pass of the small model over the previous
    ones.
    """
    if not slots:
        raise Misuse("--neural: expected the number of heads, from --run or --slots, got none")
    if args.passes:
        raise Misuse("--neural: measured passes do not include the small model's; give --gpu instead of --passes")
    name, tokens = args.neural
    return Way(
        name="neural",
        tokens_per_pass=tokens,
        verified=slots,
        slots=slots,
        small=cost_inputs.open_shape(name),
        small_passes=slots,
    )


def clock_of(args: argparse.Namespace, precision: Precision) -> Clock:
    if args.passes:
        clock = Stopwatch(passes=cost_inputs.read_passes(args.passes, args.length))
        if missing := next((batch for batch in args.batch or () if batch not in clock.passes), None):
            raise Misuse(f"--batch {missing}: {args.passes} has passes of {', '.join(map(str, clock.passes))} texts")
        return clock
    return Roofline(
        accelerator=accelerator(args.gpu or "h100"),
        precision=precision,
        bandwidth_share=args.bandwidth_share,
        compute_share=args.compute_share,
        overhead=1e-6 * args.overhead_us,
    )


def machine(args: argparse.Namespace, clock: Clock) -> dict[str, Any]:
    if not isinstance(clock, Roofline):
        return {"passes": str(args.passes)}
    return {
        **dataclasses.asdict(clock.accelerator),
        "bandwidth_share": clock.bandwidth_share,
        "compute_share": clock.compute_share,
        "overhead_s": clock.overhead,
    }


def tables(report: dict[str, Any], width: int) -> list[RenderableType]:
    model, settings, tokens = report["model"], report["settings"], report["per_token"]
    parts: list[RenderableType] = [
        f"{model['name']}: {model['read_parameters'] / 1e9:.3f} billion parameters read by a pass, "
        f"{model['block_parameters'] / 1e9:.3f} billion by its heads, {settings['parameter_bytes']:g} bytes each",
        machine_line(report["machine"]),
        "",
        "per decoded token, one text at a time",
        *table(tokens, token_columns(tokens), width),
    ]
    for batch in dict.fromkeys(one["batch"] for one in report["forecasts"]):
        rows = [one for one in report["forecasts"] if one["batch"] == batch]
        parts += ["", printable(step_title(rows, settings["length"])), *table(rows, step_columns(rows), width)]
    return parts


def table(rows: Rows, columns: Columns, width: int) -> list[Table]:
    """The fastest way is bold."""
    shown = [Column(name, [Cell.of(value, form).text for value in values]) for name, (form, values) in columns.items()]
    best = {printable(row["way"]) for row in rows if row.get("fastest")}
    return column_tables("way", [row["way"] for row in rows], shown, width=width, bold=best)


def machine_line(facts: dict[str, Any]) -> str:
    if "passes" in facts:
        return f"passes as measured in {facts['passes']}"
    return (
        f"{facts['name']}: {facts['bandwidth'] / 1e9:,.0f} GB/s ({facts['bandwidth_share']:.0%} reached), "
        f"{facts['flops'] / 1e12:,.0f} TFLOPS ({facts['compute_share']:.0%} reached); predicted, not measured"
    )


def paper(args: argparse.Namespace) -> None:
    """Prints the paper's table and its reproduction."""
    computed = paper_cost.table_11()
    names = [column.name for column in paper_cost.TABLE_11]
    rows = [
        {"row": name, "computed": list(values), "printed": list(paper_cost.PRINTED[name])}
        for name, values in computed.items()
    ]
    cells = [
        Column(name, [f"{computed[row][i]:.3f} ({paper_cost.PRINTED[row][i]})" for row in computed])
        for i, name in enumerate(names)
    ]
    output.report(
        args,
        {"columns": names, "rows": rows},
        "table 11 of the paper: computed (printed)",
        *column_tables("per decoded token", list(computed), cells, width=output.width()),
    )
