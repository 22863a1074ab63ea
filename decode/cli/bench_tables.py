"""Tables of `rescore bench`: one for each group of rows, on the screen and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rescore.decode.cli import output
from rescore.decode.cli.output import Result, TextTable
from rescore.decode.lab.bench.results import BenchReport, BenchRow
from rescore.decode.lab.report.page import plain

MACHINE = ("cpu", "cores", "memory_gib", "load")


def _markdown(table: TextTable) -> Iterator[str]:
    yield from (f"**{plain(table.title)}**", "", _row(table.header, *(column.header for column in table.columns)))
    yield "|---|" + "---:|" * len(table.columns)
    yield from (_row(label, *(one.cells[i] for one in table.columns)) for i, label in enumerate(table.labels))
    yield ""


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(plain, cells)) + " |"


def finish(
    markdown: Path | None,
    report: BenchReport,
    notes: list[str],
    tables: Sequence[TextTable],
    remarks: Sequence[str] = (),
    failed: str = "",
) -> Result:
    """Notes, tables and remarks; written to --markdown too."""
    lines = [machine_line(report), *notes, *(f"equal: {text}" for text in report.checked)]
    if markdown:
        body = [*(f"- {plain(line)}" for line in lines), ""]
        body += [line for one in tables for line in _markdown(one)]
        body += [f"- {plain(line)}" for line in remarks]
        output.write_text(markdown, "\n".join([f"## rescore bench {report.bench}", "", *body]))
    return Result(asdict(report), [*lines, *tables, *(("", *remarks) if remarks else ())], int(bool(failed)), failed)


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
