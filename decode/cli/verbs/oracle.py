"""`rescore oracle`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rescore.decode.cli.groups import DumpArgs, TaskArgs
from rescore.decode.cli.options import ReportedArgs, value_errors_of
from rescore.decode.cli.output import Part, Result, TextTable, column

if TYPE_CHECKING:
    from rescore.lattice.dump import Dump


TABLES = (
    ("block_efficiency", "oracle block efficiency", "k={}", ".3f"),
    ("recall", "recall among the K candidates", "head {}", ".1%"),
)


@dataclass(frozen=True, kw_only=True)
class OracleArgs(DumpArgs, TaskArgs, ReportedArgs):
    """Print the block efficiency of the oracle, which drafts the longest prefix of the
    true continuation that the first k candidates of each slot contain. k = 1 is the
    base draft; the largest k bounds what any rescoring of these candidates can
    gain.

    columns  k=1, k=2, ..   block efficiency: generated tokens per target pass
             head 1, ..     share of positions at which the true token is among the
                            head's K candidates; head 1 is the model's own

    examples:
      rescore oracle data/demo/sampled
      rescore oracle DUMP --task gsm8k --json oracle.json
    """


def run(args: OracleArgs) -> Result:
    from rescore.decode.cli import models, screen

    (dump,) = models.open_dumps([args.dump], allow_inexact=args.allow_inexact, tasks=args.task)
    names = [name for name in dump.tasks if not args.task or name in args.task]
    with screen.progress_bar() as bar, value_errors_of(dump.path):
        progress = bar.add_task(
            str(dump.path), total=2 * sum(task.rows for task in dump.header.tasks if task.name in names)
        )
        tasks = measure(dump, names, partial(bar.advance, progress))
    report = {"dump": str(dump.path), "kind": dump.header.kind, "tasks": tasks}
    return Result(report, tables(report))


def measure(dump: Dump, tasks: Sequence[str], advance: Callable[[int], None]) -> list[dict[str, Any]]:
    from rescore.decode.draft.rescorer import Rescorer
    from rescore.decode.lab.replay.analyses.efficiency import oracle_efficiency
    from rescore.decode.lab.replay.analyses.recall import recall

    oracles = oracle_efficiency(dump, heads=[dump.header.heads], tasks=tasks, advance=advance)
    recalls = {one.task: one.heads.to_json() for one in recall(dump, Rescorer(), tasks=tasks, advance=advance)}
    efficiency = {str(row["k"]): oracles.efficiency(name) for name, row in oracles.rows.items()}
    return [
        {
            "task": task,
            "block_efficiency": {k: value[task] for k, value in efficiency.items()},
            "recall": {head: values and values[-1] for head, values in recalls[task].items()},
        }
        for task in tasks
    ]


def tables(report: dict[str, Any]) -> list[Part]:
    parts: list[Part] = [f"{report['dump']} ({report['kind']})"]
    tasks = report["tasks"]
    for name, title, header, form in TABLES:
        columns = [column(header.format(key), (task[name][key] for task in tasks), form) for key in tasks[0][name]]
        parts.append(TextTable("task", [task["task"] for task in tasks], columns, title=title))
    return parts
