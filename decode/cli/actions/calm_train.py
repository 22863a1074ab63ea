"""Runs `rescore calm train`."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import numpy as np
from rich.table import Table

from rescore.decode.calm.exit_states import ExitStates, exit_states
from rescore.decode.calm.exit_training import ExitScore, fit_exits, score_exits
from rescore.decode.calm.setting import usual_exits
from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.calm_models import chosen_prompts, open_exit_model
from rescore.decode.training.own_texts import TextOptions, own_texts
from rescore.decode.training.states import TextStates

SHARES = (6, 3, 1)  # of texts: to fit maps, to fit classifiers, held out


def call(args: argparse.Namespace) -> None:
    model = open_exit_model(args)
    if model.decoder.facts.kind != "causal-lm":
        raise ValueError(f"{args.model}: expected a causal language model, got {model.decoder.facts.kind}")
    exits = args.layers or usual_exits(model.layered.depth)
    texts = _texts(args, model.decoder.ends, chosen_prompts(args, model.decoder), model.layered.target)
    pairs = [(text.prompt.tokens.astype(np.int64), text.tokens) for text in texts]
    parts = _parts(list(exit_states(model.layered, exits, pairs)))
    heads = fit_exits(model.layered, exits, parts[0], parts[1])
    scores = score_exits(model.layered, heads, parts[2])
    sizes = dict(zip(("translating", "classifying", "held_out"), (len(part.tokens) for part in parts)))
    figures = {"model": str(args.model), "tokens": sizes, "scores": [asdict(score) for score in scores]}
    heads.save(args.out, figures)
    output.report(args, figures, table(scores, sizes))


def _texts(args: argparse.Namespace, ends: tuple[int, ...], prompts: list, target) -> list[TextStates]:
    """The model's own greedy answers, in the order of their prompts."""
    options = TextOptions(
        temperatures=(0.0,), max_tokens=args.max_tokens, ends=ends, top_k=1, rows=args.rows, tokens=args.tokens
    )
    texts = []
    with output.progress_bar() as bar:
        row = bar.add_task("texts", total=args.tokens)
        for text in own_texts(target, prompts, options):
            texts.append(text)
            bar.advance(row, len(text.tokens))
    return sorted(texts, key=lambda text: text.prompt.number)


def _parts(states: list[ExitStates]) -> list[ExitStates]:
    """The texts of each share, joined. ValueError if there are too few."""
    if len(states) < sum(SHARES):
        raise ValueError(f"--prompts: expected at least {sum(SHARES)} texts to train and test on, got {len(states)}")
    turn = [part for part, share in enumerate(SHARES) for _ in range(share)]
    return [
        ExitStates.joined(one for i, one in enumerate(states) if turn[i % len(turn)] == part)
        for part in range(len(SHARES))
    ]


def table(scores: list[ExitScore], sizes: dict[str, int]) -> Table:
    found = Table(title=", ".join(f"{name.replace('_', ' ')} {n:,} tokens" for name, n in sizes.items()))
    for name in asdict(scores[0]):
        found.add_column(name, justify="right")
    for score in scores:
        found.add_row(str(score.layers), *(f"{value:.3f}" for value in list(asdict(score).values())[1:]))
    return found
