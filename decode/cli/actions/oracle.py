"""What `rescore oracle` does."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from rich.console import RenderableType

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.replays.oracle import OracleReplay
from rescore.decode.run import replay_dump
from rescore.lattice.block import Block
from rescore.lattice.dump import Dump
from rescore.lattice.oracle import ranks

TABLES = (
    ("block_efficiency", "oracle block efficiency", "k={}", ".3f"),
    ("recall", "recall among the K candidates", "head {}", ".1%"),
)


def call(args: argparse.Namespace) -> None:
    if args.json:
        output.check_place(args.json)
    (dump,) = models.open_dumps([args.dump], args)
    names = [name for name in dump.tasks if not args.task or name in args.task]
    with output.progress_bar() as bar, models.naming(dump):
        progress = bar.add_task(str(dump.path), total=sum(task.rows for task in dump.header.tasks if task.name in names))
        tasks = [measure(dump, name, partial(bar.advance, progress)) for name in names]
    report = {"dump": str(dump.path), "kind": dump.header.kind, "tasks": tasks}
    output.report(args, report, *tables(report, output.width()))


def widths(top_k: int) -> list[int]:
    """1, 2, 4, .. and K."""
    return [*(1 << i for i in range(top_k.bit_length()) if 1 << i < top_k), top_k]


def measure(dump: Dump, task: str, advance: Callable[[int], None]) -> dict[str, Any]:
    hits = np.zeros(dump.header.heads - 1)
    positions = np.zeros(dump.header.heads - 1)

    def recall(block: Block, worth: Any, visited: Any) -> None:
        truth = block.truth()
        hits[:] += (ranks(block.sausages(), truth) >= 0).sum(axis=0)
        positions[:] += (truth >= 0).sum(axis=0)

    oracle = OracleReplay(widths={str(k): k for k in widths(dump.header.top_k)})
    (result,) = replay_dump(dump, [oracle], tasks=[task], advance=advance, listeners=[recall]).tasks
    return {
        "task": task,
        "block_efficiency": {k: tally.block_efficiency for k, tally in result.tallies.items()},
        "recall": {str(head): float(hit / total) if total else None for head, (hit, total) in enumerate(zip(hits, positions), 2)},
    }


def tables(report: dict[str, Any], width: int) -> list[RenderableType]:
    parts: list[RenderableType] = [f"{report['dump']} ({report['kind']})"]
    tasks = report["tasks"]
    for name, title, column, form in TABLES:
        columns = [Column(column.format(key), ["" if task[name][key] is None else format(task[name][key], form) for task in tasks]) for key in tasks[0][name]]
        parts += ["", title, *column_tables("task", [task["task"] for task in tasks], columns, width=width)]
    return parts
