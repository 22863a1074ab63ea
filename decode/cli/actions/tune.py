"""Runs `rescore tune`."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.tune_tables import tables
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft.settings import ModelFile
from rescore.decode.replay.recorded import fitted_models
from rescore.decode.tuning.trial_replays import mean_efficiency
from rescore.decode.tuning.tune import Tuned, tune
from rescore.decode.tuning.tune_paths import ScalarTuning
from rescore.decode.tuning.tune_report import evaluate, heldout_json
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.ngram import NGram

Report = dict[str, Any]


def call(args: argparse.Namespace) -> None:
    if twice := next(
        (path for i, path in enumerate(args.lm) if path.resolve() in [other.resolve() for other in args.lm[:i]]), None
    ):
        raise Misuse(f"--lm {twice}: expected each model once")
    (dump,) = models.open_dumps([args.dump], args)
    if dump.slots and not args.lm:
        raise Misuse(f"--lm: expected at least one model, since {args.dump} is of a model with heads")
    if not dump.slots and len(args.lm) > 1:
        raise Misuse(
            f"--lm: expected at most one, since {args.dump} is of a model without heads, got {len(args.lm)}; "
            "merge them with `rescore lm merge`"
        )
    files = tuple(ModelFile.of(path) for path in args.lm)
    lms = [open_lm(file.path, dump) for file in files]
    with output.stages() as stage:
        tuned = tune(
            dump,
            lms,
            split=Split.of_dump(dump, args.tune_sequences),
            paths=args.paths,
            top_k=args.top_k,
            per_task=args.per_task,
            threads=args.threads,
            advance=stage,
        )
        settings = tuned.settings(files, values={}, seed=args.seed)
        stage("replaying the tuning part")
        settings = replace(
            settings, values=mean_efficiency(evaluate(dump, settings, lms, "tune", threads=args.threads))
        )
        if args.out:  # before the held-out part is read
            settings.save(args.out)
        stage("replaying the held-out part")
        heldout = heldout_json(evaluate(dump, settings, lms, "heldout", threads=args.threads), args.seed)
    folder = args.out.resolve().parent if args.out else Path.cwd()
    report = {
        "dump": str(dump.path),
        "kind": dump.header.kind,
        "settings": settings.to_json(folder),
        "trials": trials(tuned),
        "heldout": heldout,
    }
    output.report(args, report, *tables(report, dump, args, output.width()))


def open_lm(path: Path, dump: Dump) -> NGram:
    model = NGram.open(path)
    try:
        return fitted_models(dump, [model])[0]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def trials(tuned: Tuned) -> Report:
    """All trials on the tuning part: the values tried and their block efficiency."""

    def scalar(one: ScalarTuning) -> Report:
        return {
            "judged": one.judged,
            "best": one.best,
            "efficiency": [{"alpha": alpha, **values} for alpha, values in one.efficiency.items()],
        }

    of_paths = tuned.paths and {
        "scalar": scalar(tuned.paths.scalar),
        "scalar_trees": scalar(tuned.paths.scalar_trees),
        "fitted_alpha_times": list(tuned.paths.fitted.items()),
    }
    of_trees = tuned.trees and {
        kind: [{"text": one.text, "value": value} for one, value in tried.items()]
        for kind, tried in tuned.trees.tried.items()
    }
    return {**(of_paths or {}), "text": of_trees}
