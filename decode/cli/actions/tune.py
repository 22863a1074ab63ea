"""What `rescore tune` does."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.cli.arguments import DEFAULT_ALPHA, Misuse
from rescore.decode.replay.drafters.standard import check_models
from rescore.decode.replay.split import Split
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.decode.tuning.model_file import ModelFile
from rescore.decode.tuning.settings import Settings
from rescore.decode.tuning.tune import Tuned, tune
from rescore.decode.tuning.tune_paths import ScalarTuning
from rescore.decode.tuning.tune_report import evaluate, heldout_json, tuned_values
from rescore.lattice.dump import Dump
from rescore.lm.ngram import NGram

Report = dict[str, Any]
WEIGHTS = ("head", "alpha", "prior", "floor")


def call(args: argparse.Namespace) -> None:
    for path in filter(None, (args.output, args.json)):
        output.check_place(path)
    if twice := next(
        (path for i, path in enumerate(args.lm) if path.resolve() in [other.resolve() for other in args.lm[:i]]), None
    ):
        raise Misuse(f"--lm {twice}: expected each model once")
    (dump,) = models.open_dumps([args.dump], args)
    files = tuple(ModelFile.of(path) for path in args.lm)
    lms = [open_lm(path, dump) for path in args.lm]
    split = Split.of_dump(dump, args.tune_sequences)
    with output.stages() as stage:
        tuned = tune(
            dump,
            lms,
            split=split,
            paths=args.paths,
            top_k=args.top_k,
            per_task=args.per_task,
            threads=args.threads,
            advance=stage,
        )
        settings = Settings.of(tuned, dump, files, values={}, p=args.paths, top_k=args.top_k, seed=args.seed)
        stage("what it brings on the tuning part")
        values = tuned_values(evaluate(dump, settings, lms, "tune", alpha=DEFAULT_ALPHA, threads=args.threads))
        settings = replace(settings, values=values)
        if args.output:  # before the rest is looked at
            settings.save(args.output)
        stage("what it brings on the held-out part")
        heldout = heldout_json(
            evaluate(dump, settings, lms, "heldout", alpha=DEFAULT_ALPHA, threads=args.threads), args.seed
        )
    folder = args.output.resolve().parent if args.output else Path.cwd()
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
        check_models(dump, Rescorer(model))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return model


def trials(tuned: Tuned) -> Report:
    """All that was tried on the tuning part; numbers that were tried are pairs with what they brought."""

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
        "text_scales": None
        if tuned.trees is None
        else {kind: sorted(values.items()) for kind, values in tuned.trees.scales.items()},
    }


def tables(report: Report, dump: Dump, args: argparse.Namespace, width: int) -> list[RenderableType]:
    heldout, settings = report["heldout"], report["settings"]
    rows = heldout["drafters"]
    columns = [Column("tuning", [f"{settings['values'][name]:.3f}" for name in rows])]
    columns += [Column(task, [f"{row['tasks'][task]:.3f}" for row in rows.values()]) for task in heldout["tasks"]]
    columns.append(Column("mean", [f"{row['mean']:.3f}" for row in rows.values()]))
    columns.append(
        Column(
            "±",
            [
                "" if (low := row["interval"][0]) is None else f"{(row['interval'][1] - low) / 2:.3f}"
                for row in rows.values()
            ],
        )
    )
    columns.append(Column("change", [change(row) for row in rows.values()]))
    columns.append(Column("interval", [interval(row) for row in rows.values()]))
    columns.append(Column("p", [p_value(row) for row in rows.values()]))
    bold = {name for name in rows if name.startswith(("tuned_", "open_")) or name.endswith("_tuned")}
    sizes = ", ".join(f"{task} {n}" for task, n in settings["split"]["tune"].items())
    lines: list[RenderableType] = [
        f"{dump.path}: tuned on the first sequences of each task ({sizes}), held out: the rest",
        "",
    ]
    lines += column_tables("block efficiency", list(rows), columns, width=width, bold=bold)
    lines += ["", *weight_tables(report, width)]
    if settings["trees"] is None:
        lines.append(
            "trees: not calibrated, since a calibration weighs one model: make one of several with rescore lm merge, "
            "and tune that"
        )
    lines.append(f"settings: {args.output}" if args.output else "settings: not written; -o FILE keeps them")
    return lines


def change(row: Report) -> str:
    return f"{row['difference']['value']:+.3f}" if "difference" in row else ""


def interval(row: Report) -> str:
    bounds = row["difference"]["interval"] if "difference" in row else [None]
    return "" if bounds[0] is None else f"{bounds[0]:+.3f} {bounds[1]:+.3f}"


def p_value(row: Report) -> str:
    value = row["difference"]["p_value"] if "difference" in row else None
    return "" if value is None else f"{value:.3f}"


def weight_tables(report: Report, width: int) -> list[RenderableType]:
    """What was chosen for all tasks together, head by head, and the strengths of the running text, for tasks too."""
    settings, tried = report["settings"], report["trials"]
    paths, trees = settings["paths"], settings["trees"] or {}
    columns = [Column("paths: head", listed(paths["head"]))]
    several = len(settings["models"]) > 1
    columns += [
        Column(f"alpha {place}" if several else "alpha", listed(alpha)) for place, alpha in enumerate(paths["alpha"], 1)
    ]
    for kind in ("closed", "open"):
        columns += [
            Column(f"{kind}: {name}" if name == "head" else name, listed(trees[kind]["overall"][name]))
            for name in WEIGHTS
            if trees
        ]
    heads = [str(slot + 2) for slot in range(settings["slots"])]
    lines: list[RenderableType] = [
        f"one alpha for all slots: {tried['scalar']['best']:.3g} serves {settings['p']} paths best, "
        f"{tried['scalar_trees']['best']:.3g} uncalibrated trees"
    ]
    lines += ["", *column_tables("head", heads, [column.repeated(len(heads)) for column in columns], width=width)]
    if trees:
        tasks = list(trees["open"]["by_task"])
        strengths = [
            Column(kind, [text(one) for one in (trees[kind]["overall"], *map(trees[kind]["by_task"].get, tasks))])
            for kind in trees
        ]
        lines += ["", *column_tables("running text", ["all tasks", *tasks], strengths, width=width)]
    return lines


def listed(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def text(calibration: Report) -> str:
    """Strengths of the contexts of 0, 1, .. tokens."""
    return ", ".join(f"{value:.3g}" for value in calibration["text"]) if calibration["text"] else "not used"
