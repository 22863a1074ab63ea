"""Runs `rescore calm calibrate`."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table

from rescore.decode.calm.calibration import Promise, ThresholdSearch, calibrated_file
from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.calm_models import chosen_prompts, open_exit_model
from rescore.decode.cli.arguments import Misuse


def call(args: argparse.Namespace) -> None:
    for name in ("delta", "epsilon"):
        if getattr(args, name) == 1:
            raise Misuse(f"--{name}: expected a number below 1, got 1")
    model = open_exit_model(args)
    prompts = [prompt.tokens for prompt in chosen_prompts(args, model.decoder)]
    promise = Promise(risk=args.risk, delta=args.delta, epsilon=args.epsilon)
    with output.progress_bar() as bar:
        row = bar.add_task("texts", total=len(prompts) * (1 + len(args.thresholds)))
        search = ThresholdSearch(
            model.layered,
            model.setting(args, args.thresholds[0]),
            model.heads,
            prompts,
            model.options(args.max_tokens),
            rows=args.rows,
            advance=lambda texts: bar.advance(row, texts),
        )
        tested = search.run(args.thresholds, promise, every=args.every)
    about = {"model": str(args.model), "trained": args.exits and str(args.exits), "max_tokens": args.max_tokens}
    found = calibrated_file(search, tested, promise, about)
    output.write_json(args.out, found)
    output.report(args, found, table(found))


def table(found: dict[str, Any]) -> Table:
    best = found["threshold"]
    title = f"LOSSY: P(mean {found['risk']} risk > {found['delta']}) <= {found['epsilon']} at " + (
        f"threshold {best}" if best is not None else "no threshold; use the full model"
    )
    shown = Table(title=title, title_justify="left", caption=f"{found['texts']} texts, {found['depth']} layers")
    for name in ("threshold", "risk", "p-value", "layers", "valid"):
        shown.add_column(name, justify="right")
    for one in found["tested"]:
        p_value, valid = one["p_value"], {True: "yes", False: "no", None: ""}[one["valid"]]
        shown.add_row(
            f"{one['threshold']:g}",
            f"{one['risk']:.4f}",
            "" if p_value is None else f"{p_value:.2g}",
            f"{one['layers']:.2f}",
            valid,
        )
    return shown
