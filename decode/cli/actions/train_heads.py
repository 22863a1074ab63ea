"""Runs `rescore train heads`."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.training_texts import (
    STATES,
    TrainingTexts,
    minutes,
    open_texts,
    recalls_table,
    run_training,
)
from rescore.decode.loop.dump_make import sha256
from rescore.decode.models.checkpoint import read_object
from rescore.decode.models.conditioned_heads import CONFIG, WEIGHTS, ConditionedHeads, read_form
from rescore.decode.models.model_check import matrices_of
from rescore.decode.training import heads_training
from rescore.decode.training.estimate import Estimate, estimate
from rescore.decode.training.heads_training import HeadsTraining, TrainingOptions
from rescore.decode.training.lessons import Lessons
from rescore.decode.training.vocabulary import choose_vocabulary, lost_share

FORM = {"slots": 5, "layers": 1, "draft_vocabulary": 16384}


def call(args: argparse.Namespace) -> None:
    choose_form(args)
    run = _Run(args, open_texts(args))
    run.tell_estimate()
    if args.estimate:
        return
    run.texts.write()
    output.report(args, *run.train())


def choose_form(args: argparse.Namespace) -> None:
    """Sets slots, layers and draft vocabulary to those of --start or to the defaults."""
    asked = [name for name in FORM if getattr(args, name) is not None]
    if args.start and asked:
        raise ValueError(
            f"--{asked[0].replace('_', '-')} {getattr(args, asked[0])}: not used with --start, whose heads have their "
            "own; leave it out"
        )
    form = asdict(read_form(args.start)) if args.start else FORM
    for name in set(FORM).difference(asked):
        setattr(args, name, form[name])


class _Run:
    def __init__(self, args: argparse.Namespace, texts: TrainingTexts):
        self.args, self.texts, self.model = args, texts, texts.model
        self.options = TrainingOptions(
            temperature=args.teach,
            batch=args.batch,
            rounds=args.rounds,
            rate=args.rate,
            seed=args.seed,
            bfloat16=args.dtype == "bfloat16",
        )

    def tell_estimate(self) -> None:
        args, texts = self.args, self.texts
        found = estimate(
            texts.target,
            texts.left(),
            replace(texts.options, tokens=texts.wanted),
            there=texts.store.tokens,
            read=args.read,
            width=texts.width,
            slots=args.slots,
            draft_vocabulary=min(args.draft_vocabulary, texts.decoder.facts.vocab_size),
            rounds=args.rounds,
            dtype=getattr(torch, args.dtype),
        )
        output.Screen(stderr=True).print(_estimated(found, texts.store.tokens, args.out))

    def train(self) -> tuple[dict[str, Any], Table]:
        args, texts = self.args, self.texts
        if not texts.store.tokens:
            raise ValueError(f"{args.out / STATES}: expected texts, got none; give prompts that the model answers")
        lessons = Lessons(texts.store.shards, args.slots)
        heads = self._heads(lessons).to(texts.target.device)
        about = {
            "base_model": args.model.name,
            "tokenizer_sha256": texts.decoder.tokenizer.sha256,
            "tokens": texts.store.tokens,
            "lost": round(lost_share(lessons, heads.ids.cpu().numpy()), 5),
        }
        if args.start:
            about["start"] = {
                "tokens": read_object(args.start / CONFIG).get("tokens"),
                "sha256": sha256(args.start / WEIGHTS),
            }
        training = HeadsTraining(heads, lessons, self.options, args.out, about)
        best = run_training(training, "heads")
        parameters = sum(one.numel() for one in heads.parameters())
        figures = {
            "heads": str(args.out / heads_training.HEADS),
            "parameters": parameters,
            **about,
            "draft_vocabulary": len(heads.ids),
            "positions": {"train": len(lessons.train), "held_out": len(lessons.valid)},
            "best": best,
        }
        return figures, _table(figures)

    def _heads(self, lessons: Lessons) -> ConditionedHeads:
        """The heads of --start, or new ones, which predict what the model predicts."""
        args, model = self.args, self.model
        embedding, table = (one.float() for one in matrices_of(model))
        if args.start:
            return ConditionedHeads.load(args.start, embedding=embedding, table=table, device=table.device)
        ids = torch.from_numpy(choose_vocabulary(lessons, self.texts.decoder.facts.vocab_size, args.draft_vocabulary))
        torch.manual_seed(args.seed)
        return ConditionedHeads(slots=args.slots, layers=args.layers, embedding=embedding, table=table, vocabulary=ids)


def _estimated(found: Estimate, there: int, out: Path) -> Table:
    free = shutil.disk_usage(next(path for path in (out, *out.absolute().parents) if path.exists())).free
    return output.facts(
        [
            (
                "answers",
                f"{found.tokens:,} tokens to generate after {found.prompt_tokens:,} of prompts; {there:,} exist",
            ),
            ("texts", minutes(found.texts_seconds)),
            ("heads", f"{minutes(found.heads_seconds)} at most"),
            ("disk", f"{found.disk / 1e9:,.2f} GB, of {free / 1e9:,.0f} GB free"),
        ]
    )


def _table(figures: dict[str, Any]) -> Table:
    title = (
        f"{figures['heads']}: {figures['parameters']:,} weights, {figures['tokens']:,} tokens, "
        f"{figures['lost']:.2%} of held-out tokens outside the draft vocabulary; step {figures['best']['step']}"
    )
    return recalls_table(title, "slot", figures["best"])
