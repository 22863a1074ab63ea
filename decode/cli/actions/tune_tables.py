"""Tables of `rescore tune`."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import RenderableType

from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.draft.calibration import HEADLESS
from rescore.decode.draft.names import split
from rescore.decode.draft.settings import BLEND
from rescore.lattice.dump import Dump

Report = dict[str, Any]
WEIGHTS = ("head", "alpha", "prior", "floor")
OF_SHARE = ("constant", "ln total", "ln distinct")  # the weights of a `Share`


def tables(report: Report, dump: Dump, args: argparse.Namespace, width: int) -> list[RenderableType]:
    settings = report["settings"]
    lines = heldout_tables(report, dump, width)
    lines += ["", *(weight_tables if settings["paths"] else share_tables)(report, width)]
    if settings["trees"] is None:
        lines.append(
            "trees: not calibrated, since a calibration has one model; merge the models with `rescore lm merge` and "
            "tune the result"
        )
    return [*lines, written(args)]


def share_tables(report: Report, width: int) -> list[RenderableType]:
    """The shares of the running text, for a model without heads."""
    tuned = report["settings"]["trees"][BLEND]["overall"]["text"]
    columns = [
        Column(f"{weight}, {name}", [f"{value:.3g}" for value in values])
        for name, shares in (("default", HEADLESS.text or ()), ("tuned", tuned))
        for weight, values in zip(OF_SHARE, zip(*shares))
    ]
    return [*column_tables("context", [str(order) for order in range(len(tuned))], columns, width=width)]


def written(args: argparse.Namespace) -> str:
    return f"settings: {args.out}" if args.out else "settings: not written; use -o FILE"


def heldout_tables(report: Report, dump: Dump, width: int) -> list[RenderableType]:
    """The split, and the drafters' block efficiency on both parts."""
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
    bold = {name for name in rows if split(name)[0].endswith((" tuned", " tuned by task"))}
    sizes = ", ".join(f"{task} {n}" for task, n in settings["split"]["tune"].items())
    lines: list[RenderableType] = [
        f"{dump.path}: tuned on the first sequences of each task ({sizes}), held out: the rest",
        "",
    ]
    return [*lines, *column_tables("block efficiency", list(rows), columns, width=width, bold=bold)]


def change(row: Report) -> str:
    return f"{row['difference']['value']:+.3f}" if "difference" in row else ""


def interval(row: Report) -> str:
    bounds = row["difference"]["interval"] if "difference" in row else [None]
    return "" if bounds[0] is None else f"{bounds[0]:+.3f} {bounds[1]:+.3f}"


def p_value(row: Report) -> str:
    value = row["difference"]["p_value"] if "difference" in row else None
    return "" if value is None else f"{value:.3f}"


def weight_tables(report: Report, width: int) -> list[RenderableType]:
    """The weights of each head for all tasks together, and whether the running text is read, also by task."""
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
        f"best alpha for all slots: {tried['scalar']['best']:.3g} for {settings['p']} paths, "
        f"{tried['scalar_trees']['best']:.3g} for uncalibrated trees"
    ]
    lines += ["", *column_tables("head", heads, [column.repeated(len(heads)) for column in columns], width=width)]
    if trees:
        tasks = list(trees["open"]["by_task"])
        read = [
            Column(kind, [text(one) for one in (trees[kind]["overall"], *map(trees[kind]["by_task"].get, tasks))])
            for kind in trees
        ]
        lines += ["", *column_tables("running text", ["all tasks", *tasks], read, width=width)]
    return lines


def listed(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def text(calibration: Report) -> str:
    return "used" if calibration["text"] else "not used"
