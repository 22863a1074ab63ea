"""The parts of a report: sections of prose, tables and plots. HTML, Markdown and JSON are written from them.

All texts are plain and untrusted (names of tasks and tokens come from files); the writers escape them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, its sort key (None: the text), and a note below it such as an interval."""

    text: str
    value: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under headers; the first column names the row.

    strong  numbers of the rows to emphasise
    gist    the table's main result in one line, shown while it is folded
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    strong: frozenset[int] = frozenset()
    gist: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.headers):
                raise ValueError(
                    f"table {self.title!r}, row {number}: expected {len(self.headers)} cells, got {len(row)}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotView:
    """One selectable view of a plot, such as a task: its name and its plotly traces."""

    name: str
    traces: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot with its views, and plotly's layout for all of them.

    alt  describes the plot in words
    """

    title: str
    alt: str
    views: Sequence[PlotView]
    layout: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values, one pair per line."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled section of the page.

    prose  how to read it
    cites  the corresponding table or figure of the paper
    lead   whether the page shows it in full width with its prose unfolded
    """

    key: str
    title: str
    prose: Sequence[str]
    parts: Sequence[Table | Plot | Facts] = ()
    cites: str = ""
    browser: dict[str, Any] | None = None
    lead: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9-]*", self.key):
            raise ValueError(f"section: expected a key of lower-case letters, digits and hyphens, got {self.key!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A headline figure: its name, the figure, and the line below it."""

    name: str
    figure: str
    beside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole report.

    verdict  the result in one sentence
    figures  of the drafters, as "overall" and "tasks" in the JSON of `rescore run`
    """

    title: str
    subtitle: str
    verdict: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    figures: dict[str, Any] = field(default_factory=dict)
