"""Runs `rescore dump info`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import RenderableType

from rescore.decode.cli.actions import models, output
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.lattice.dump import Dump

IDENTITIES = ("seed", "end_of_text")  # numbers that are not counts, printed without separators


def call(args: argparse.Namespace) -> None:
    dump = Dump.open(args.dump, allow_inexact=args.allow_inexact)
    if args.verify:
        with models.naming(dump), output.stages() as stage:
            stage(f"verifying {dump.path}")
            dump.check()
    info = {"dump": str(dump.path), **dump.info(), "verified": args.verify}
    output.report(args, info, *tables(info, output.width()))


def tables(info: dict[str, Any], width: int) -> list[RenderableType]:
    rows = [
        (name, str(value) if name in IDENTITIES else value)
        for name, value in info.items()
        if name not in ("tasks", "provenance", "loop_share", "verified") and value is not None
    ]
    rows += [
        (f"provenance: {name}", value if isinstance(value, str) else json.dumps(value))
        for name, value in info["provenance"].items()
    ]
    rows.append(
        (
            "verified",
            "checksums and values of all shards"
            if info["verified"]
            else "header, names and sizes (--verify checks everything)",
        )
    )
    tasks = info["tasks"]
    columns = [Column(name, [f"{task[name]:,}" for task in tasks]) for name in ("sequences", "rows", "bytes")]
    columns.append(Column("loops", [f"{task['loop_share']:.0%}" for task in tasks]))
    return [output.facts(rows), "", *column_tables("task", [task["task"] for task in tasks], columns, width=width)]
