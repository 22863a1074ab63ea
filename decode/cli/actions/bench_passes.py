"""Runs `rescore bench passes`."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from rich.console import RenderableType

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.bench_decode import facts_of
from rescore.decode.cli.actions.decoders import checked_device, opened
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.cli.arguments import Misuse
from rescore.decode.cost.model_shape import PRESETS, ModelShape
from rescore.decode.loop.payoff import WIDTHS, measure_passes
from rescore.decode.models.located import hide_unseen_bars
from rescore.decode.models.model_facts import model_facts
from rescore.decode.models.target import Target
from rescore.lattice.extras import needed_for

BATCHES = (1, 8)


def call(args: argparse.Namespace) -> None:
    if (args.model is None) == (args.shape is None):
        raise Misuse("--model, --shape: expected exactly one of them")
    torch.set_num_threads(args.threads)
    target = target_of(args)
    if target.context is not None and args.length + max(WIDTHS) > target.context:
        raise Misuse(
            f"--length {args.length}: expected at most {max(1, target.context - max(WIDTHS))}, "
            f"since the model's context is {target.context} tokens and the widest pass reads {max(WIDTHS)}"
        )
    tables_: list[dict[str, Any]] = []
    with output.stages() as stage:
        for batch in dict.fromkeys(args.batch or BATCHES):
            stage(f"passes of {batch} texts")
            how = {"rows": batch, "length": args.length, "repeats": args.repeats}
            costs = measure_passes(target, **how)
            trees = measure_passes(target, **how, trees=True) if target.trees else None
            tables_.append(
                {
                    "batch": batch,
                    "length": args.length,
                    "tokens": costs.tokens.tolist(),
                    "seconds": costs.seconds.tolist(),
                    "tree_seconds": trees and trees.seconds.tolist(),
                }
            )
    report = {
        "machine": facts_of(target.device),
        "settings": {
            "model": str(args.model) if args.model else None,
            "shape": args.shape,
            "engine": args.engine,
            "dtype": args.dtype,
            "repeats": args.repeats,
            "threads": args.threads,
        },
        "passes": tables_,
    }
    output.report(args, report, *tables(report, output.width()))


def target_of(args: argparse.Namespace) -> Target:
    device = checked_device(args.device)
    if args.shape:
        return random_target(PRESETS[args.shape], device, getattr(torch, args.dtype or "float32"))
    hide_unseen_bars(args.model)
    return opened(args, model_facts(args.model), device).target


def tables(report: dict[str, Any], width: int) -> list[RenderableType]:
    facts = report["machine"]
    parts: list[RenderableType] = [
        f"{facts['device']}, {facts['cpu']}, {report['settings']['threads']} threads, load {facts['load']}, "
        f"torch {facts['torch']}"
    ]
    for one in report["passes"]:
        columns = [
            Column("ms", [f"{1e3 * value:.2f}" for value in one["seconds"]]),
            Column("x first", [f"{value / one['seconds'][0]:.2f}" for value in one["seconds"]]),
        ]
        if one["tree_seconds"]:
            columns.append(Column("ms, trees", [f"{1e3 * value:.2f}" for value in one["tree_seconds"]]))
        parts += [
            "",
            f"batch {one['batch']}, {one['length']:,} tokens in the cache",
            *column_tables("tokens", [str(number) for number in one["tokens"]], columns, width=width),
        ]
    return parts


def random_target(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> Target:
    """Makes a causal language model of this shape with random weights. ImportError without transformers."""
    with needed_for("a model with random weights"):
        from transformers import LlamaConfig, LlamaForCausalLM
    from rescore.decode.models.causal_lm import CausalLMTarget

    config = LlamaConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        intermediate_size=shape.hidden,
        vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=1 << 16,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return CausalLMTarget(LlamaForCausalLM(config).eval())
    finally:
        torch.set_default_dtype(before)
