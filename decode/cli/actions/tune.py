"""Runs `rescore tune`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.tune_tables import blend_tables, tables
from rescore.decode.cli.arguments import Misuse
from rescore.decode.draft import DEFAULT_ALPHA
from rescore.decode.draft.settings import Settings
from rescore.decode.draft.settings_parts import ModelFile
from rescore.decode.replay.run import DumpResult
from rescore.decode.replay.standard import fitted_models
from rescore.decode.tuning.trial_replays import mean_efficiency
from rescore.decode.tuning.tune import Tuned, tune
from rescore.decode.tuning.tune_blend import tune_blend
from rescore.decode.tuning.tune_paths import ScalarTuning
from rescore.decode.tuning.tune_report import evaluate, evaluate_blend, heldout_json, tuned_values
from rescore.lattice.dump import Dump
from rescore.lattice.split import Split
from rescore.lm.ngram import NGram

Report = dict[str, Any]
PATHS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The tuned settings (without values), the trials, and functions that replay the tuning part and the rest."""

    settings: Settings
    trials: Any
    values: Callable[[], dict[str, float]]
    heldout: Callable[[], DumpResult]


def call(args: argparse.Namespace) -> None:
    if twice := next(
        (path for i, path in enumerate(args.lm) if path.resolve() in [other.resolve() for other in args.lm[:i]]), None
    ):
        raise Misuse(f"--lm {twice}: expected each model once")
    (dump,) = models.open_dumps([args.dump], args)
    headless = dump.header.heads == 1
    check_options(args, headless)
    files = [ModelFile.of(path) for path in args.lm]
    lms = {file: open_lm(file.path, dump) for file in files}
    split = Split.of_dump(dump, args.tune_sequences)
    with output.stages() as stage:
        found = (of_blend if headless else of_heads)(args, dump, lms, split, stage)
        stage("replaying the tuning part")
        settings = replace(found.settings, values=found.values())
        if args.out:  # before the held-out part is read
            settings.save(args.out)
        stage("replaying the held-out part")
        heldout = heldout_json(found.heldout(), args.seed)
    folder = args.out.resolve().parent if args.out else Path.cwd()
    report = {
        "dump": str(dump.path),
        "kind": dump.header.kind,
        "settings": settings.to_json(folder),
        "trials": found.trials,
        "heldout": heldout,
    }
    output.report(args, report, *(blend_tables if headless else tables)(report, dump, args, output.width()))


def check_options(args: argparse.Namespace, headless: bool) -> None:
    """Misuse for options that the dump's model has no use for."""
    if not headless and not args.lm:
        raise Misuse(f"--lm: expected at least one model, since {args.dump} is of a model with heads")
    if headless and len(args.lm) > 1:
        raise Misuse(
            f"--lm: expected at most one, since {args.dump} is of a model without heads, got {len(args.lm)}; "
            "merge them with `rescore lm merge`"
        )
    for name in ("paths", "top_k", "per_task") if headless else ():
        if getattr(args, name):
            raise Misuse(f"--{name.replace('_', '-')}: only for dumps of models with heads; {args.dump} has none")


def of_heads(
    args: argparse.Namespace, dump: Dump, lms: Mapping[ModelFile, NGram], split: Split, stage: Callable[[str], None]
) -> Found:
    paths, opened = args.paths or PATHS, list(lms.values())
    tuned = tune(
        dump,
        opened,
        split=split,
        paths=paths,
        top_k=args.top_k,
        per_task=args.per_task,
        threads=args.threads,
        advance=stage,
    )
    settings = tuned.settings(tuple(lms), values={}, seed=args.seed)
    return Found(
        settings=settings,
        trials=trials(tuned),
        values=lambda: tuned_values(tuned.replays, settings, alpha=DEFAULT_ALPHA),
        heldout=lambda: evaluate(dump, settings, opened, "heldout", alpha=DEFAULT_ALPHA, threads=args.threads),
    )


def of_blend(
    args: argparse.Namespace, dump: Dump, lms: Mapping[ModelFile, NGram], split: Split, stage: Callable[[str], None]
) -> Found:
    model = next(iter(lms.values()), None)
    tuned = tune_blend(dump, model, split=split, threads=args.threads, advance=stage)
    settings = tuned.settings(tuple(lms), values={}, seed=args.seed)
    tried = [{"text": one.text, "value": value} for one, value in tuned.tried.items()]

    def of_part(part: str) -> DumpResult:
        return evaluate_blend(dump, settings, model, part, threads=args.threads)

    return Found(
        settings=settings,
        trials=tried,
        values=lambda: mean_efficiency(of_part("tune")),
        heldout=lambda: of_part("heldout"),
    )


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

    return {
        "scalar": scalar(tuned.paths.scalar),
        "scalar_trees": scalar(tuned.paths.scalar_trees),
        "fitted_alpha_times": list(tuned.paths.fitted.items()),
        "text": None
        if tuned.trees is None
        else {
            kind: [{"text": one.text, "value": value} for one, value in tried.items()]
            for kind, tried in tuned.trees.tried.items()
        },
    }
