"""Runs `rescore bench decode --replay`."""

from __future__ import annotations

import argparse

import torch

from rescore.decode.bench.replayed import Rig, bench_replay, random_target, replayed_efficiency, ways
from rescore.decode.bench.results import BenchReport, BenchRow, bench_machine
from rescore.decode.cli.actions import bench_tables, models, output
from rescore.decode.cli.actions.bench_tables import TablePart
from rescore.decode.cli.actions.columns import Column
from rescore.decode.cli.actions.decoders import checked_device
from rescore.decode.cli.arguments import Misuse
from rescore.decode.cost.model_shape import PRESETS
from rescore.decode.replay.standard import ReplayOptions
from rescore.lattice.dump import Dump

PACKAGES = ("rescore", "torch", "transformers", "numpy")


def call(args: argparse.Namespace) -> int:
    for name in ("model", "heads", "tokenizer", "prompts", "draft_model", "neural", "nodes", "ahead", "settings"):
        if getattr(args, name):
            raise Misuse(
                f"--{name.replace('_', '-')}: not used with --replay, which has random weights and the dump's text"
            )
    dump = Dump.open(args.replay, allow_inexact=True)
    args.semantics = "failure"
    rescorer = models.open_rescorer(args, [dump])
    options = ReplayOptions(paths=args.paths or 16, top_k=args.top_k)
    device, name = checked_device(args.device), args.shape or "1.5b"
    shape, dtype = PRESETS[name], getattr(torch, args.dtype or ("bfloat16" if device.type == "cuda" else "float32"))
    target, top_k = random_target(shape, device, dtype), min(dump.header.top_k, shape.vocab_size)
    rig = Rig(
        target,
        width=shape.width,
        dtype=dtype,
        slots=dump.slots,
        top_k=top_k,
        length=args.length,
        repeats=args.repeats,
    )
    efficiency = replayed_efficiency(dump, rescorer, options)
    batches, rows = args.batch or [1, 8], []
    with output.progress_bar() as bar:
        steps = bar.add_task("passes", total=len(batches) * len(list(ways(dump, rescorer, options))))
        for batch in batches:
            rows += bench_replay(
                dump, rescorer, rig, options, batch=batch, efficiency=efficiency, advance=lambda: bar.advance(steps)
            )
    found = bench_tables.of_drafters(rows)
    report = BenchReport(
        bench="decode",
        machine={
            **bench_machine(*PACKAGES),
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
            "torch_threads": torch.get_num_threads(),
        },
        settings={
            "replay": str(args.replay),
            "lm": [str(path) for path, _ in args.lm],
            "shape": name,
            "dtype": str(dtype).removeprefix("torch."),
            "length": args.length,
            "repeats": args.repeats,
            "threads": args.threads,
            "acceptance": "replayed from the dump; all weights are random",
        },
        checked=(),
        rows=tuple(found),
    )
    notes = [
        f"random weights of shape {name} in {report.settings['dtype']}, {args.length} tokens in the cache, "
        f"{args.threads} threads;",
        f"tokens per pass are replayed from {args.replay}, not decoded by these weights",
    ]
    bench_tables.finish(args, report, notes, parts(found))
    return 0


def parts(rows: list[BenchRow]) -> list[TablePart]:
    found = []
    for row in rows:
        own = list(row.engines.values())
        kinds = sorted({kind for one in own for kind in one["pass_ms"]})
        columns = [
            Column("verified", [str(one["verified"]) for one in own]),
            Column("tokens/pass", [f"{one['tokens_per_pass']:.2f}" for one in own]),
            *(
                Column(
                    f"pass ms, {kind}", [f"{one['pass_ms'][kind]:.2f}" if kind in one["pass_ms"] else "" for one in own]
                )
                for kind in kinds
            ),
            *(
                Column(
                    f"with drafting, {kind}",
                    [f"{one['step_ms'][kind]:.2f}" if kind in one["step_ms"] else "" for one in own],
                )
                for kind in kinds
                if any("step_ms" in one for one in own)
            ),
            Column("heads ms", [f"{one['lattice_ms']:.2f}" for one in own]),
            Column("search ms", [f"{one['search_ms']:.3f}" for one in own]),
            Column("drafting", [f"{one['drafting_share']:.0%}" for one in own]),
            Column("tokens/s", [f"{one['tokens_per_s']:.1f}" for one in own]),
            Column("x plain", [f"{one['times_plain']:.2f}" for one in own]),
        ]
        found.append(TablePart(title=row.group, header="drafter", labels=list(row.engines), columns=columns))
    return found
