"""What `rescore bench decode --replay` does."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from rich.console import RenderableType

from rescore.decode.bench_replay import Rig, bench_replay, random_target, replayed_efficiency, ways
from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.cli.actions.decoders import checked_device
from rescore.decode.cli.arguments import Misuse
from rescore.decode.machine import machine
from rescore.decode.model_shape import PRESETS
from rescore.decode.replays.standard import ReplayOptions
from rescore.lattice.dump import Dump

PACKAGES = ("rescore", "torch", "transformers", "numpy")


def call(args: argparse.Namespace) -> int:
    for name in ("model", "heads", "tokenizer", "prompts", "draft_model", "neural", "nodes", "ahead", "settings"):
        if getattr(args, name):
            raise Misuse(f"--{name.replace('_', '-')}: not used with --replay, whose weights are random and whose text is the dump's")
    dump = Dump.open(args.replay, allow_inexact=True)
    args.semantics = "failure"
    rescorer = models.open_rescorer(args, [dump])
    options = ReplayOptions(paths=args.paths or 16, top_k=args.top_k)
    device, name = checked_device(args.device), args.shape or "1.5b"
    shape, dtype = PRESETS[name], getattr(torch, args.dtype or ("bfloat16" if device.type == "cuda" else "float32"))
    target, top_k = random_target(shape, device, dtype), min(dump.header.top_k, shape.vocab_size)
    rig = Rig(target, width=shape.width, dtype=dtype, slots=dump.header.heads - 1, top_k=top_k, length=args.length, repeats=args.repeats)
    efficiency = replayed_efficiency(dump, rescorer, options)
    batches, rows = args.batch or [1, 8], []
    with output.progress_bar() as bar:
        steps = bar.add_task("passes", total=len(batches) * len(list(ways(dump, rescorer, options))))
        for batch in batches:
            rows += bench_replay(dump, rescorer, rig, options, batch=batch, efficiency=efficiency, advance=lambda: bar.advance(steps))
    report = {
        "machine": {**machine(*PACKAGES), "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", "torch_threads": torch.get_num_threads()},
        "settings": {"replay": str(args.replay), "lm": [str(path) for path, _ in args.lm], "shape": name, "dtype": str(dtype).removeprefix("torch."),
                     "length": args.length, "repeats": args.repeats, "threads": args.threads},
        "acceptance": "replayed from the dump; all weights are random",
        "results": rows,
    }
    output.report(args, report, *tables(report, output.width()))
    return 0


def tables(report: dict[str, Any], width: int) -> list[RenderableType]:
    facts, settings = report["machine"], report["settings"]
    parts: list[RenderableType] = [
        f"{facts['device']}, {facts['cpu']}, {settings['threads']} threads, load {facts['load']}, torch {facts['torch']}",
        f"random weights of shape {settings['shape']} in {settings['dtype']}, {settings['length']} tokens in the cache;",
        f"tokens per pass are replayed from {settings['replay']}, not decoded by these weights",
    ]
    for batch in sorted({row["batch"] for row in report["results"]}):
        rows = [row for row in report["results"] if row["batch"] == batch]
        kinds = sorted({kind for row in rows for kind in row["pass_ms"]})
        columns = [
            Column("verified", [str(row["verified"]) for row in rows]),
            Column("tokens/pass", [f"{row['tokens_per_pass']:.2f}" for row in rows]),
            *(Column(f"pass ms, {kind}", [f"{row['pass_ms'][kind]:.2f}" if kind in row["pass_ms"] else "" for row in rows]) for kind in kinds),
            *(Column(f"with drafting, {kind}", [f"{row['step_ms'][kind]:.2f}" if kind in row["step_ms"] else "" for row in rows]) for kind in kinds),
            Column("heads ms", [f"{row['lattice_ms']:.2f}" for row in rows]),
            Column("search ms", [f"{row['search_ms']:.3f}" for row in rows]),
            Column("drafting", [f"{row['drafting_share']:.0%}" for row in rows]),
            Column("tokens/s", [f"{row['tokens_per_s']:.1f}" for row in rows]),
            Column("x plain", [f"{row['times_plain']:.2f}" for row in rows]),
        ]
        parts += ["", f"batch {batch}", *column_tables("drafter", [row["drafter"] for row in rows], columns, width=width)]
    return parts
