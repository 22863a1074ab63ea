"""`rescore oracle`: how much is left to gain in a dump."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from rescore.decode.cli import arguments, output
from rescore.decode.cli.run import check_tasks
from rescore.decode.measures import Tally
from rescore.decode.replay import visited_rows
from rescore.lattice.dump import Dump
from rescore.lattice.oracle import oracle_by_width, ranks

DESCRIPTION = """\
The block efficiency of the oracle: of the longest prefix of the true continuation that the first k candidates of each
slot allow. k = 1 is the base draft; the rest is what any rescoring of these candidates could gain at best.

columns  k=1, k=2, ..   block efficiency, generated tokens per target pass
         head 2, ..     share of positions whose true token is among the head's K candidates
"""

EXAMPLES = """\
examples:
  rescore oracle data/demo/sampled
  rescore oracle DUMP --json oracle.json
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    parser = verbs.add_parser("oracle", parents=[common], help="the ceiling of rescoring, for every k", description=DESCRIPTION,
                              epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dump", type=Path, metavar="DUMP")
    parser.add_argument("--task", action="append", metavar="NAME", help="only this task; may be given several times")
    parser.add_argument("--allow-inexact", action="store_true", help="accept a greedy dump whose tokens are not head 1's first candidates")
    arguments.add_json(parser)
    parser.set_defaults(call=call)


def call(args: argparse.Namespace) -> None:
    dump = Dump.open(args.dump, allow_inexact=args.allow_inexact)
    check_tasks(dump, args.task)
    with output.progress_bar() as bar:
        progress = bar.add_task(str(dump.path), total=sum(task.rows for task in dump.header.tasks))
        tasks = [measure(dump, name, lambda n: bar.advance(progress, n)) for name in dump.tasks if not args.task or name in args.task]
    report = {"dump": str(dump.path), "kind": dump.header.kind, "tasks": tasks}
    if args.json:
        output.write_json(args.json, report)
    if str(args.json) != "-":
        show(report)


def widths(top_k: int) -> list[int]:
    """1, 2, 4, .. and K."""
    return [*(1 << i for i in range(top_k.bit_length()) if 1 << i < top_k), top_k]


def measure(dump: Dump, task: str, advance: Any) -> dict[str, Any]:
    tallies = {k: Tally() for k in widths(dump.header.top_k)}
    hits = np.zeros(dump.header.heads - 1)
    positions = np.zeros(dump.header.heads - 1)
    for block in dump.blocks(task):
        sausages, truth = block.sausages(), block.truth()
        by_width = oracle_by_width(sausages, truth)
        for k, tally in tallies.items():
            accepted = by_width[:, k - 1]
            tally.add(accepted, np.full_like(accepted, block.slots), visited_rows(accepted, block.offsets), block.rows, block.sequences)
        hits += (ranks(sausages, truth) >= 0).sum(axis=0)
        positions += (truth >= 0).sum(axis=0)
        advance(block.rows)
    return {
        "task": task,
        "block_efficiency": {str(k): tally.block_efficiency for k, tally in tallies.items()},
        "recall": {str(head): float(hit / max(total, 1)) for head, (hit, total) in enumerate(zip(hits, positions), 2)},
    }


def show(report: dict[str, Any]) -> None:
    screen = output.console()
    for measure_name, title, column, form in (("block_efficiency", "oracle block efficiency", "k={}", "{:.3f}"),
                                              ("recall", "recall among the K candidates", "head {}", "{:.1%}")):
        table = Table(title=f"{report['dump']} ({report['kind']}): {title}", title_justify="left", header_style="bold", box=None, padding=(0, 2, 0, 0))
        table.add_column("task")
        for key in report["tasks"][0][measure_name]:
            table.add_column(column.format(key), justify="right")
        for task in report["tasks"]:
            table.add_row(task["task"], *(form.format(value) for value in task[measure_name].values()))
        screen.print(table)
