"""Runs `rescore oracle`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rich.console import RenderableType

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.draft.rescorer import Rescorer
from rescore.decode.replay.analyses.efficiency import oracle_efficiency
from rescore.decode.replay.analyses.recall import recall
from rescore.lattice.dump import Dump

TABLES = (
    ("block_efficiency", "oracle block efficiency", "k={}", ".3f"),
    ("recall", "recall among the K candidates", "head {}", ".1%"),
)


def call(args: argparse.Namespace) -> None:
    (dump,) = models.open_dumps([args.dump], args)
    names = [name for name in dump.tasks if not args.task or name in args.task]
    with output.progress_bar() as bar, models.naming(dump):
        progress = bar.add_task(
            str(dump.path), total=2 * sum(task.rows for task in dump.header.tasks if task.name in names)
        )
        tasks = measure(dump, names, partial(bar.advance, progress))
    report = {"dump": str(dump.path), "kind": dump.header.kind, "tasks": tasks}
    output.report(args, report, *tables(report, output.width()))


def measure(dump: Dump, tasks: Sequence[str], advance: Callable[[int], None]) -> list[dict[str, Any]]:
    oracles = oracle_efficiency(dump, heads=[dump.header.heads], tasks=tasks, advance=advance)
    recalls = {one.task: one.heads.to_json() for one in recall(dump, Rescorer(), tasks=tasks, advance=advance)}
    efficiency = {str(row["k"]): oracles.efficiency(name) for name, row in oracles.rows.items()}
    return [
        {
            "task": task,
            "block_efficiency": {k: value[task] for k, value in efficiency.items()},
            "recall": {head: values and values[-1] for head, values in recalls[task].items() if head != "1"},
        }
        for task in tasks
    ]


def tables(report: dict[str, Any], width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [f"{report['dump']} ({report['kind']})"]
    tasks = report["tasks"]
    for name, title, column, form in TABLES:
        columns = [
            Column(
                column.format(key), ["" if task[name][key] is None else format(task[name][key], form) for task in tasks]
            )
            for key in tasks[0][name]
        ]
        parts += ["", title, *column_tables("task", [task["task"] for task in tasks], columns, width=width)]
    return parts
