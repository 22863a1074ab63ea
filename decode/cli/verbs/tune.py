"""`rescore tune`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rescore.decode.cli import values
from rescore.decode.cli.groups import DumpArgs, ThreadArgs
from rescore.decode.cli.options import Misuse, ReportedArgs, option, value_errors_of
from rescore.decode.cli.output import Part, Result, TextTable, column, ends, half_width
from rescore.decode.cli.values import Written, int_between
from rescore.decode.draft.registry import split

if TYPE_CHECKING:
    from rescore.decode.lab.tuning.tune import Tuned
    from rescore.lattice.dump import Dump
    from rescore.lm.model.ngram import NGram


Report = dict[str, Any]
WEIGHTS = ("head", "alpha", "prior", "floor")
OF_SHARE = ("constant", "ln total", "ln distinct")  # the weights of a `Share`


@dataclass(frozen=True, kw_only=True)
class TuneArgs(DumpArgs, ThreadArgs, ReportedArgs):
    """Fit the weights of drafters on the first sequences of every task of a dump,
    report the gain on the rest, and write a settings file for --settings of `run`
    and `generate` (docs/use/tuning.md).

    tuned    for the p best paths: a temperature of each head, and alpha of each slot
             and model (fitted), if these are better than the default alpha
             for trees: temperature, alpha, prior and floor of each slot, and the
             shares of the running text (fitted), if it is better with them
             for a dump without heads: the shares of the running text (fitted)
    rows     drafters of `rescore run` with default weights (the default alpha), and
             tuned: the p best paths, trees of the heads' candidates (tree), trees
             with all sources (blend)
    columns  tuning     mean over tasks on the tuning part; not a result
             then       block efficiency on the held-out part, mean and half of its
                        95% interval
             change     difference to the default, with its interval and p-value

    examples:
      rescore tune data/demo/greedy --lm data/demo/demo.ngram -o settings.json
      rescore run data/demo/greedy --settings settings.json
      rescore tune DUMP --lm general.ngram --lm domain.ngram -o settings.json
      rescore tune HEADLESS_DUMP --lm general.ngram -o settings.json
      rescore tune DUMP --lm LM --tune-sequences 50 --json tuned.json
    """

    lm: Sequence[Path] = option(
        "LM",
        "an .ngram file; repeatable, but then only the p best paths are tuned, with a weight for each model (for "
        "trees, merge them with `rescore lm merge`); a dump without heads takes at most one",
        Path,
        several=True,
    )
    out: Path | None = option("FILE", "settings file to write", Written(), short="-o")
    tune_sequences: int | None = option(
        "N",
        "first sequences of each task that form the tuning part (default: 100, at most half)",
        int_between(1, 2**48),
    )
    paths: int = option("P", "paths verified in parallel", int_between(1, 1024), default=16)
    top_k: int | None = option("K", "candidates per slot (default: all in the dump)", int_between(1, 64))
    seed: int = option(None, "seed of the bootstrap", values.seed, default=0, rare=True)


def run(args: TuneArgs) -> Result:
    from msgspec import structs

    from rescore.decode.cli import models, screen
    from rescore.decode.draft.settings import ModelFile
    from rescore.decode.lab.tuning.tune import evaluate, heldout_json, mean_efficiency, tune
    from rescore.lattice.split import Split

    models.check_once(args.lm, "--lm {}: expected each model once")
    (dump,) = models.open_dumps([args.dump], allow_inexact=args.allow_inexact, top_k=args.top_k)
    if dump.slots and not args.lm:
        raise Misuse(f"--lm: expected at least one model, since {args.dump} is of a model with heads")
    models.check_lms(dump, len(args.lm))
    files = tuple(ModelFile.of(path) for path in args.lm)
    lms = [open_lm(file.path, dump) for file in files]
    with screen.stages() as stage:
        tuned = tune(
            dump,
            lms,
            split=Split.of_dump(dump, args.tune_sequences),
            paths=args.paths,
            top_k=args.top_k,
            threads=args.threads,
            advance=stage,
        )
        settings = tuned.settings(files, values={}, seed=args.seed)
        stage("replaying the tuning part")
        settings = structs.replace(
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
    return Result(report, [*tables(report, dump), f"settings: {args.out or 'not written; use -o FILE'}"])


def open_lm(path: Path, dump: Dump) -> NGram:
    from rescore.decode.lab.replay.recorded import fitted_models
    from rescore.lm.model.ngram import NGram

    with value_errors_of(path):
        return fitted_models(dump, [NGram.open(path)])[0]


def trials(tuned: Tuned) -> Report:
    """All weights tried, with what they reached on the tuning part."""
    from msgspec import to_builtins

    tried = {"paths": tuned.paths, "trees": tuned.trees}
    return {
        drafts: own and [{"weights": to_builtins(weights), "value": value} for weights, value in own.values.items()]
        for drafts, own in tried.items()
    }


def tables(report: Report, dump: Dump) -> list[Part]:
    settings = report["settings"]
    lines = heldout_tables(report, dump)
    lines += ["", *(weight_tables if settings["paths"] else share_tables)(settings)]
    if settings["trees"] is None:
        from rescore.decode.draft.rescorer import MERGE

        lines.append(f"trees: not calibrated, since a calibration has one model; {MERGE}, and tune the result")
    return lines


def share_tables(settings: Report) -> list[Part]:
    """The shares of the running text, for a model without heads."""
    from rescore.decode.draft.calibration import HEADLESS

    tuned = settings["trees"]["text"]
    columns = [
        column(f"{weight}, {name}", values, ".3g")
        for name, shares in (("default", HEADLESS.text or ()), ("tuned", tuned))
        for weight, values in zip(OF_SHARE, zip(*shares))
    ]
    return [TextTable("context", [str(order) for order in range(len(tuned))], columns)]


def heldout_tables(report: Report, dump: Dump) -> list[Part]:
    """The split, and the drafters' block efficiency on both parts."""
    heldout, settings = report["heldout"], report["settings"]
    rows = heldout["drafters"]
    none = {"value": None, "interval": (None, None), "p_value": None}
    changes = [row.get("difference", none) for row in rows.values()]
    columns = [
        column("tuning", (settings["values"][name] for name in rows), ".3f"),
        *(column(task, (row["tasks"][task] for row in rows.values()), ".3f") for task in heldout["tasks"]),
        column("mean", (row["mean"] for row in rows.values()), ".3f"),
        column("±", (half_width(*row["interval"]) for row in rows.values()), ".3f"),
        column("change", (one["value"] for one in changes), "+.3f"),
        column("interval", (ends(*one["interval"]) for one in changes)),
        column("p", (one["p_value"] for one in changes), ".3f"),
    ]
    bold = {name for name in rows if split(name)[0].endswith(" tuned")}
    sizes = ", ".join(f"{task} {n}" for task, n in settings["split"]["tune"].items())
    title = f"{dump.path}: tuned on the first sequences of each task ({sizes}), held out: the rest"
    return [title, "", TextTable("block efficiency", list(rows), columns, bold=bold)]


def weight_tables(settings: Report) -> list[Part]:
    """The weights of each head, and whether the running text is read."""
    paths, trees = settings["paths"], settings["trees"]
    weights = [("paths: head", paths["head"])]
    several = len(settings["models"]) > 1
    weights += [(f"alpha {place}" if several else "alpha", alpha) for place, alpha in enumerate(paths["alpha"], 1)]
    weights += [(f"trees: {name}" if name == "head" else name, trees[name]) for name in WEIGHTS if trees]
    heads = [str(slot + 2) for slot in range(settings["slots"])]
    columns = [column(name, [*of] * (len(heads) // len(of)), ".2f") for name, of in weights]
    lines: list[Part] = [TextTable("head", heads, columns)]
    if trees:
        lines.append(f"trees: the running text is {'used' if trees['text'] else 'not used'}")
    return lines
