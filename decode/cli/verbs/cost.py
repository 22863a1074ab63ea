"""`rescore cost`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import values
from rescore.decode.cli.options import Misuse, ReportedArgs, option
from rescore.decode.cli.output import Column, Part, Result, TextTable
from rescore.decode.cli.values import float_between, int_between, printable

if TYPE_CHECKING:
    from rescore.decode.cost.cost_model import Clock, Method
    from rescore.decode.cost.cost_tables import Columns, Rows
    from rescore.decode.cost.model_shape import ModelShape


@dataclass(frozen=True, kw_only=True)
class CostArgs(ReportedArgs):
    r"""Predict the bytes moved and the operations per decoded token, the time of a step
    on an accelerator, and the fastest way of drafting there, from a model's shape
    and the measured block efficiency of drafters (docs/use/cost-model.md).

    first table   GB parameters   read per decoded token, one text at a time
                  GB cache, L     keys and values of a text of L tokens
                  GFLOP           after --length tokens; a multiply-add is two
    then, for every --batch
                  ms/step         the target's pass, its heads and the search
                  drafting        share of the step spent on the search on the CPU
                  tokens/s        of all texts together
                  x plain         ratio to autoregressive decoding
                  bound           what limits the target's pass
                  GB              parameters and cache in memory; ! does not fit
                  pays below      smallest batch at which drafts are no faster than
                                  plain decoding; - if none up to 1024

    Times come from a roofline model: the longer of memory time and compute time, at
    an assumed share of the data sheet's figures. --passes FILE uses passes measured
    on your machine instead (`rescore bench passes --json FILE`), without heads.

    examples:
      rescore cost --model llama-3-8b --run run.json --gpu h100
      rescore cost --model DIR --run run.json --dump data/demo/sampled \
          --gpu l4 --batch 1 --batch 32 --length 2048 --json cost.json
      rescore cost --model 7b --way 'mine=2.4,64' --gpu 1008,165,24
      rescore cost --model 7b --run run.json --neural SMALL=1.5
      rescore cost --model model.safetensors --run run.json --passes passes.json \
          --length 512
    """

    model: str = option(
        "NAME|PATH",
        "tiny, 1.5b, 7b, llama-3-8b, llama-3-70b, paper-1.5b; a config.json, the .safetensors file of a "
        "blockwise transformer, or a folder with one of them",
        required=True,
    )
    run: Path | None = option(
        "FILE", "block efficiencies, verified tokens and times, written by `rescore run --json`", Path
    )
    dump: str | None = option("DUMP", "which dump of --run, if it has several")
    way: Sequence[tuple[str, float, float, int]] = option(
        "NAME=TOKENS,VERIFIED[,ROWS]",
        "a drafter given by its tokens per pass, verified tokens and rows; repeatable",
        values.way,
        several=True,
    )
    neural: tuple[str, float] | None = option(
        "NAME|PATH=TOKENS",
        "add greedy rescoring by a small model of this shape, T of its passes per step",
        values.rescorer,
        rare=True,
    )
    slots: int | None = option(
        "T", "slots: heads besides the model's own (default: those of --run)", int_between(0, 1024), rare=True
    )
    gpu: str | None = option(
        "NAME|GB/S,TFLOPS,GB",
        "h200, h100, h100-pcie, a100, a100-40gb, l40s, l4, a10, rtx-4090, rtx-3090, mi300x, or its three figures "
        "(default: h100)",
    )
    passes: Path | None = option("FILE", "measured passes instead of --gpu", Path)
    batch: Sequence[int] = option(
        "B",
        "texts per batch; repeatable (default: 1, 8 and 64; with --passes all that were measured)",
        int_between(1, 2**16),
        several=True,
    )
    length: int = option("L", "tokens in the cache", int_between(1, 2**24), default=1024)
    parameter_bytes: float = option("N", "bytes per parameter", float_between(0, 8, above=True), default=2.0, rare=True)
    cache_bytes: float = option(
        "N", "bytes per number in the cache", float_between(0, 8, above=True), default=2.0, rare=True
    )
    bandwidth_share: float = option(
        "S",
        "share of the data sheet's bandwidth that is reached",
        float_between(0, 1, above=True),
        default=0.8,
        rare=True,
    )
    compute_share: float = option(
        "S",
        "share of its operations per second that is reached",
        float_between(0, 1, above=True),
        default=0.6,
        rare=True,
    )
    overhead_us: float = option(
        "US", "fixed overhead per step in microseconds", float_between(0, 1e9), default=0.0, rare=True
    )


def run(args: CostArgs) -> Result:
    from msgspec import structs

    from rescore.decode.cost import cost_inputs
    from rescore.decode.cost.cost_model import CostOptions, Precision, Stopwatch
    from rescore.decode.cost.cost_tables import BATCHES, batches_of, step_rows, token_rows

    if not args.run and not args.way and not args.neural:
        raise Misuse("--run, --way, --neural: expected at least one of them, for the tokens per pass of drafters")
    if args.passes and args.gpu:
        raise Misuse("--passes replaces the machine: leave out --gpu")
    shape, ways = inputs(args)
    precision = Precision(parameter=args.parameter_bytes, cache=args.cache_bytes)
    clock = cost_inputs.open_clock(
        args.gpu or "h100",
        args.passes,
        args.length,
        precision=precision,
        bandwidth_share=args.bandwidth_share,
        compute_share=args.compute_share,
        overhead=1e-6 * args.overhead_us,
    )
    if isinstance(clock, Stopwatch) and (missing := next((one for one in args.batch if one not in clock.passes), None)):
        raise Misuse(f"--batch {missing}: {args.passes} has passes of {', '.join(map(str, clock.passes))} texts")
    options = CostOptions(
        name=args.model, shape=shape, machine=args.gpu or "", clock=clock, length=args.length, precision=precision
    )
    report = {
        "model": {"name": args.model, **structs.asdict(shape), "read_parameters": shape.read_parameters},
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
    return Result(report, tables(report))


def inputs(args: CostArgs) -> tuple[ModelShape, list[Method]]:
    """The model's shape with its heads, and every way to draft."""
    from rescore.decode.cost import cost_inputs
    from rescore.decode.cost.cost_model import PLAIN, Method

    shape = cost_inputs.open_shape(args.model)
    ways = cost_inputs.read_ways(args.run, args.dump) if args.run else []
    slots = args.slots if args.slots is not None else max((way.slots for way in ways), default=0)
    ways = [dataclasses.replace(way, slots=slots if way.slots else 0) for way in ways]
    ways += [
        Method(name=name, tokens_per_pass=tokens, verified=verified, rows=rows, slots=slots)
        for name, tokens, verified, rows in args.way
    ]
    if args.neural:
        ways.append(neural(*args.neural, slots, args.passes))
    names = [way.name for way in (PLAIN, *ways)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Misuse(f"--way {twice}: expected a name that no other way has")
    if slots and not shape.block_parameters and shape.parameters is None:
        shape = shape.with_block_heads(slots)
    return shape, ways


def neural(name: str, tokens: float, slots: int, passes: Path | None) -> Method:
    """The paper's local rescoring: one draft of T tokens, each chosen by a pass of the small model over the previous
    ones.
    """
    from rescore.decode.cost import cost_inputs
    from rescore.decode.cost.cost_model import Method

    if not slots:
        raise Misuse("--neural: expected the number of heads, from --run or --slots, got none")
    if passes:
        raise Misuse("--neural: measured passes do not include the small model's; give --gpu instead of --passes")
    return Method(
        name="neural",
        tokens_per_pass=tokens,
        verified=slots,
        slots=slots,
        small=cost_inputs.open_shape(name),
        small_passes=slots,
    )


def machine(args: CostArgs, clock: Clock) -> dict[str, Any]:
    from rescore.decode.cost.cost_model import Roofline

    if not isinstance(clock, Roofline):
        return {"passes": str(args.passes)}
    return {
        **dataclasses.asdict(clock.accelerator),
        "bandwidth_share": clock.bandwidth_share,
        "compute_share": clock.compute_share,
        "overhead_s": clock.overhead,
    }


def tables(report: dict[str, Any]) -> list[Part]:
    from rescore.decode.cost.cost_tables import step_columns, step_title, token_columns

    model, settings, tokens = report["model"], report["settings"], report["per_token"]
    parts: list[Part] = [
        f"{model['name']}: {model['read_parameters'] / 1e9:.3f} billion parameters read by a pass, "
        f"{model['block_parameters'] / 1e9:.3f} billion by its heads, {settings['parameter_bytes']:g} bytes each",
        machine_line(report["machine"]),
        table("per decoded token, one text at a time", tokens, token_columns(tokens)),
    ]
    for batch in dict.fromkeys(one["batch"] for one in report["forecasts"]):
        rows = [one for one in report["forecasts"] if one["batch"] == batch]
        parts.append(table(printable(step_title(rows, settings["length"])), rows, step_columns(rows)))
    return parts


def table(title: str, rows: Rows, columns: Columns) -> TextTable:
    """The fastest way is bold."""
    from rescore.decode.report.content import Cell

    shown = [Column(name, [Cell.of(value, form).text for value in values]) for name, (form, values) in columns.items()]
    best = {row["way"] for row in rows if row.get("fastest")}
    return TextTable("way", [row["way"] for row in rows], shown, bold=best, title=title)


def machine_line(facts: dict[str, Any]) -> str:
    if "passes" in facts:
        return f"passes as measured in {facts['passes']}"
    return (
        f"{facts['name']}: {facts['bandwidth'] / 1e9:,.0f} GB/s ({facts['bandwidth_share']:.0%} reached), "
        f"{facts['flops'] / 1e12:,.0f} TFLOPS ({facts['compute_share']:.0%} reached); predicted, not measured"
    )
