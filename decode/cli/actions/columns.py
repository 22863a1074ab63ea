"""Tables with many columns, split into several if the screen is too narrow."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.table import Table

from rescore.decode.cli.arguments import printable

GAPS = (2, 1)  # blanks between columns: the wider gap if all columns fit with it
MAX_HEADER = 24  # longer names are shortened


@dataclass(frozen=True, slots=True)
class Column:
    """A header and one cell per label."""

    header: str
    cells: list[str]

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (short(self.header), *self.cells))

    def repeated(self, times: int) -> Column:
        """A single cell, repeated; columns with several cells are unchanged."""
        return Column(self.header, self.cells * times) if len(self.cells) == 1 else self


def short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= MAX_HEADER else name[: MAX_HEADER - 3] + "..."


def columns_width(header: str, labels: Sequence[str], columns: Sequence[Column], gap: int) -> int:
    """The width of one table with all columns, in characters."""
    return max(cell_len(text) for text in (header, *labels)) + sum(gap + column.width for column in columns)


def column_tables(
    header: str,
    labels: Sequence[str],
    columns: Sequence[Column],
    *,
    width: int,
    gap: int | None = None,
    bold: Collection[str] = (),
) -> list[Table]:
    """The columns as one or more tables that fit into the width. Each table repeats the labels on the left."""
    header, labels = printable(header), [printable(label) for label in labels]
    if gap is None:
        gap = next((gap for gap in GAPS if columns_width(header, labels, columns, gap) <= width), GAPS[-1])
    tables, rest = [], list(columns)
    while rest:
        number = max(
            (n for n in range(1, len(rest) + 1) if columns_width(header, labels, rest[:n], gap) <= width), default=1
        )
        tables.append(one_table(header, labels, rest[:number], gap, bold))
        rest = rest[number:]
    return tables


def one_table(header: str, labels: Sequence[str], columns: Sequence[Column], gap: int, bold: Collection[str]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    table.add_column(header, overflow="fold")
    for column in columns:
        table.add_column(short(column.header), justify="right", no_wrap=True)
    for row, label in enumerate(labels):
        table.add_row(label, *(column.cells[row] for column in columns), style="bold" if label in bold else None)
    return table
