"""`rescore dump`: dumps themselves."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.table import Table

from rescore.decode.cli import arguments, output
from rescore.lattice.dump import Dump

EXAMPLES = """\
examples:
  rescore dump info data/demo/sampled
  rescore dump info DUMP --verify --json -
"""


def add_parser(verbs: Any, common: argparse.ArgumentParser) -> None:
    dump = verbs.add_parser("dump", help="look at dumps", description="Look at dumps; tools/dump_logits.py makes them.")
    actions = dump.add_subparsers(dest="action", required=True, metavar="ACTION")
    info = actions.add_parser("info", parents=[common], help="what a dump holds", epilog=EXAMPLES,
                              description="Model, tokenizer, kind and provenance of a dump; sequences, rows, bytes and the share of continuations that loop (fewer than 8 distinct tokens in the last 24) per task.",
                              formatter_class=argparse.RawDescriptionHelpFormatter)
    info.add_argument("dump", type=Path, metavar="DUMP")
    info.add_argument("--verify", action="store_true", help="read everything: checksums of all shards, every value")
    info.add_argument("--allow-inexact", action="store_true", help="accept a greedy dump whose tokens are not head 1's first candidates")
    arguments.add_json(info)
    info.set_defaults(call=call_info)


def call_info(args: argparse.Namespace) -> None:
    dump = Dump.open(args.dump, allow_inexact=args.allow_inexact)
    if args.verify:
        dump.check()
    info = {"dump": str(dump.path), **dump.info()}
    if args.json:
        output.write_json(args.json, info)
    if str(args.json) != "-":
        show(info, args.verify)


def show(info: dict[str, Any], verified: bool) -> None:
    screen = output.console()
    facts = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in info.items():
        if name not in ("tasks", "provenance") and value is not None:
            facts.add_row(name, f"{value:,}" if isinstance(value, int) and name not in ("seed",) else str(value))
    for name, value in info["provenance"].items():
        facts.add_row(f"provenance: {name}", str(value))
    if verified:
        facts.add_row("verified", "checksums and values of all shards")
    screen.print(facts)
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("task")
    for name in ("sequences", "rows", "bytes", "loops"):
        table.add_column(name, justify="right")
    for task in info["tasks"]:
        table.add_row(task["task"], f"{task['sequences']:,}", f"{task['rows']:,}", f"{task['bytes']:,}", f"{task['loop_share']:.0%}")
    screen.print(table)
