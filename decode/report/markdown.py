"""The tables of a report as Markdown, for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rescore.decode.report.content import Cell, Facts, Report, Section, Table
from rescore.lattice.svg import clean

SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")


def markdown(report: Report) -> str:
    """The report's prose and tables, without plots and lattice browser."""
    lines = [f"# {plain(report.title)}", "", plain(report.subtitle), "", plain(report.verdict), ""]
    for section in report.sections:
        parts = [part for part in section.parts if isinstance(part, (Table, Facts))]
        if parts or section.browser is None:
            lines += _section(section, parts)
    return "\n".join(lines).rstrip() + "\n"


def _section(section: Section, parts: list[Table | Facts]) -> Iterator[str]:
    cites = f" ({plain(section.cites)} of Kim et al. 2024)" if section.cites else ""
    yield from (f"## {plain(section.title)}{cites}", "")
    for paragraph in section.prose:
        yield from (plain(paragraph), "")
    for part in parts:
        yield from (f"**{plain(part.title)}**", "")
        yield from _table(part) if isinstance(part, Table) else _facts(part)
        yield ""


def _table(table: Table) -> Iterator[str]:
    yield row_of(plain(header) for header in table.headers)
    yield "|---|" + "---:|" * (len(table.headers) - 1)
    for number, row in enumerate(table.rows):
        mark = "**" if number in table.strong else ""
        yield row_of(mark + _cell(cell) + mark if place == 0 else _cell(cell) for place, cell in enumerate(row))


def _facts(facts: Facts) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    for name, value in facts.rows:
        yield row_of((plain(name), plain(value)))


def row_of(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Cell) -> str:
    return plain(cell.text) + (f" ({plain(cell.note)})" if cell.note else "")


def plain(content: str) -> str:
    """The content on one line, with Markdown characters escaped."""
    return SPECIAL.sub(r"\\\1", clean(content))
