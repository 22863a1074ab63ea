"""What `rescore train bita` does."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.training_texts import STATES, TrainingTexts, open_texts, run_training
from rescore.decode.models.bita import BitaTokens
from rescore.decode.training.bita_groups import taught_texts
from rescore.decode.training.bita_training import TOKENS, BitaOptions, BitaTraining
from rescore.decode.training.training_run import RECALLS

BITA = "bita"


def call(args: argparse.Namespace) -> None:
    if args.json:
        output.check_place(args.json)
    texts = open_texts(args)
    texts.write()
    if not texts.store.tokens:
        raise ValueError(f"{args.out / STATES}: expected texts, got none; give prompts that the model answers")
    output.report(args, *_train(args, texts))


def _train(args: argparse.Namespace, texts: TrainingTexts) -> tuple[dict[str, Any], Table]:
    tokens = BitaTokens.new(texts.target, masks=args.masks, prompts=args.prompt_tokens, seed=args.seed)
    taught = taught_texts(texts.store.shards)
    options = BitaOptions(
        texts=args.batch, groups=args.groups, rounds=args.rounds, rate=args.rate, every=args.every, seed=args.seed
    )
    about = {
        "base_model": args.model.name,
        "tokenizer_sha256": texts.decoder.tokenizer.sha256,
        "tokens": texts.store.tokens,
    }
    training = BitaTraining(texts.target, tokens, taught, options, args.out / BITA, about)
    best = run_training(training, "bita")
    figures = {
        "bita": str(training.folder / TOKENS),
        "parameters": sum(one.numel() for one in tokens.parameters()),
        **about,
        "texts": {"train": len(training.train), "held_out": len(training.held)},
        "best": best,
    }
    return figures, _table(figures)


def _table(figures: dict[str, Any]) -> Table:
    best = figures["best"]
    table = Table(
        title=f"{figures['bita']}: {figures['parameters']:,} weights, {figures['tokens']:,} tokens of "
        f"{figures['texts']['train']:,} texts; step {best['step']}",
        title_justify="left",
    )
    table.add_column("mask")
    for name in ("loss", *(f"recall@{k}" for k in RECALLS)):
        table.add_column(name, justify="right")
    for t, loss in enumerate(best["loss"]):
        table.add_row(str(t + 1), f"{loss:.3f}", *(f"{values[t]:.3f}" for values in best["recall"].values()))
    return table
