"""Tables of `rescore bench`: one for each group of rows, on the screen and as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from rescore.decode.bench.results import BenchReport, BenchRow
from rescore.decode.cli.actions import output
from rescore.decode.cli.actions.columns import Column, column_tables
from rescore.decode.report.markdown import plain, row_of

MACHINE = ("cpu", "cores", "memory_gib", "load")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of the table.

    name    in a row
    header  of its column; empty for the engine's name
    form    format specification
    """

    name: str
    header: str
    form: str


OF_TIMES = (
    Figure(name="median_us", header="", form=".1f"),
    Figure(name="p99_us", header="p99", form=".1f"),
    Figure(name="times_ours", header="x", form=".1f"),
    Figure(name="times_as_timed", header="x as timed", form=".2f"),
)
OF_ENGINES = (
    Figure(name="median_us", header="median", form=".1f"),
    *OF_TIMES[1:3],
    Figure(name="times_ours_p99", header="x p99", form=".1f"),
)


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
        rows = [
            row_of(plain(cell) for cell in (label, *(column.cells[i] for column in self.columns)))
            for i, label in enumerate(self.labels)
        ]
        return [
            f"**{plain(self.title)}**",
            "",
            row_of(plain(name) for name in (self.header, *(column.header for column in self.columns))),
            "|---|" + "---:|" * len(self.columns),
            *rows,
            "",
        ]


def of_engines(
    title: str,
    header: str,
    labels: list[str],
    rows: Sequence[BenchRow],
    short: Mapping[str, str],
    figures: Sequence[Figure] = OF_TIMES,
) -> TablePart:
    """A table with one line per row, and a column for each engine and each figure that the first row has.

    short: headers for names of engines
    """
    columns = [
        Column(
            figure.header or short.get(name, name),
            [written(row.engines[name].get(figure.name), figure.form) for row in rows],
        )
        for name, own in rows[0].engines.items()
        for figure in figures
        if figure.name in own
    ]
    return TablePart(title=title, header=header, labels=labels, columns=columns)


def by_engine(title: str, header: str, row: BenchRow, figures: Sequence[Figure]) -> TablePart:
    """A table of one row's figures, with one line per engine."""
    engines = list(row.engines)
    columns = [
        Column(figure.header, [written(row.engines[name].get(figure.name), figure.form) for name in engines])
        for figure in figures
        if any(figure.name in own for own in row.engines.values())
    ]
    return TablePart(title=title, header=header, labels=engines, columns=columns)


def written(value: float | str | None, form: str) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:{form}}"


def of_runs(title: str, labels: list[str], runs: Sequence[Sequence[BenchRow]], short: Mapping[str, str]) -> TablePart:
    """The ratios of every run of the benchmark: of medians, and of 99th percentiles in brackets."""
    names = [name for name, own in runs[0][0].engines.items() if "times_ours" in own]
    cells = {
        name: [
            ", ".join(
                f"{rows[i].engines[name]['times_ours']:.1f} ({rows[i].engines[name]['times_ours_p99']:.1f})"
                for rows in runs
            )
            for i in range(len(labels))
        ]
        for name in names
    }
    return TablePart(
        title=title, header="", labels=labels, columns=[Column(short.get(name, name), cells[name]) for name in names]
    )


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
