"""Runs `rescore train bita`."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.training_texts import STATES, TrainingTexts, open_texts, recalls_table, run_training
from rescore.decode.models.bita import BitaTokens
from rescore.decode.training.bita_groups import taught_texts
from rescore.decode.training.bita_training import TOKENS, BitaOptions, BitaTraining

BITA = "bita"


def call(args: argparse.Namespace) -> None:
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
    title = (
        f"{figures['bita']}: {figures['parameters']:,} weights, {figures['tokens']:,} tokens of "
        f"{figures['texts']['train']:,} texts; step {figures['best']['step']}"
    )
    return recalls_table(title, "mask", figures["best"])
