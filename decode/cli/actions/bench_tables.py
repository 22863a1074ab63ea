"""Tables of `rescore bench`: one for each group of rows, on the screen and as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from rescore.decode.bench.results import BenchReport, BenchRow
from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.output import Column, column_tables
from rescore.decode.report.page import plain

MACHINE = ("cpu", "cores", "memory_gib", "load")


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePart:
    """A titled table: every row has a label and one cell per column."""

    title: str
    header: str
    labels: list[str]
    columns: list[Column]

    def shown(self, width: int) -> list[RenderableType]:
        return ["", self.title, *column_tables(self.header, self.labels, self.columns, width=width)]

    def markdown(self) -> list[str]:
        rows = [_row(label, *(column.cells[i] for column in self.columns)) for i, label in enumerate(self.labels)]
        return [
            f"**{plain(self.title)}**",
            "",
            _row(self.header, *(column.header for column in self.columns)),
            "|---|" + "---:|" * len(self.columns),
            *rows,
            "",
        ]


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(plain, cells)) + " |"


def finish(
    args: argparse.Namespace,
    report: BenchReport,
    notes: list[str],
    parts: Sequence[TablePart],
    remarks: Sequence[str] = (),
) -> None:
    """Prints notes, tables and remarks, and writes --json and --markdown."""
    lines = [machine_line(report), *notes, *(f"equal: {text}" for text in report.checked)]
    tables = [line for part in parts for line in part.shown(output.width())]
    if args.markdown:
        body = [f"- {plain(line)}" for line in lines] + [""] + [line for part in parts for line in part.markdown()]
        body += [f"- {plain(line)}" for line in remarks]
        output.write_text(args.markdown, "\n".join([f"## rescore bench {report.bench}", "", *body]))
    output.report(args, report.to_json(), *lines, *tables, *(("", *remarks) if remarks else ()))


def of_drafters(found: Iterable[Mapping[str, Any]]) -> list[BenchRow]:
    """Groups figures by batch size, then drafter; each names both."""
    batches: dict[int, dict[str, dict[str, Any]]] = {}
    for one in found:
        figures = {name: value for name, value in one.items() if name not in ("drafter", "batch")}
        batches.setdefault(one["batch"], {})[one["drafter"]] = figures
    return [
        BenchRow(group=f"batch {batch}", case={"batch": batch}, engines=engines) for batch, engines in batches.items()
    ]


def machine_line(report: BenchReport) -> str:
    facts = report.machine
    versions = [f"{name} {value}" for name, value in facts.items() if name not in MACHINE and value is not None]
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, load {facts['load']}; "
        f"{', '.join(versions)}"
    )
