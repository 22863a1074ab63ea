"""`rescore dump info`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from rescore.decode.cli.groups import DumpArgs
from rescore.decode.cli.options import ReportedArgs, flag, value_errors_of
from rescore.decode.cli.output import Column, Facts, Part, Result, TextTable

IDENTITIES = ("seed", "end_of_text")  # numbers that are not counts, printed without separators


@dataclass(frozen=True, kw_only=True)
class DumpInfoArgs(DumpArgs, ReportedArgs):
    """Print the model, tokenizer, kind and provenance of a dump, and its tasks:

    columns  sequences   continuations
             rows        tokens of the continuations, each with its predictions
             bytes       size of the task's files
             loops       sequences with fewer than 8 distinct tokens in their last
                         24

    examples:
      rescore dump info data/demo/greedy
      rescore dump info DUMP --verify --json -
    """

    verify: bool = flag("read every shard and check its checksum and values")


def run(args: DumpInfoArgs) -> Result:
    from rescore.decode.cli import screen
    from rescore.lattice.dump import Dump

    dump = Dump.open(args.dump, allow_inexact=args.allow_inexact)
    if args.verify:
        with value_errors_of(dump.path), screen.stages() as stage:
            stage(f"verifying {dump.path}")
            dump.check()
    info = {"dump": str(dump.path), **dump.info(), "verified": args.verify}
    return Result(info, tables(info))


def tables(info: dict[str, Any]) -> list[Part]:
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
    return [Facts(rows), "", TextTable("task", [task["task"] for task in tasks], columns)]
