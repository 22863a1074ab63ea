"""What a report is made of: sections of prose, tables and plots, which HTML and Markdown are written from.

All texts are plain: whoever writes them out escapes them. Names of tasks and tokens come from files of strangers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, what it sorts by (None: the text), a note below it such as an interval."""

    text: str
    value: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under headers; the first column names the row. `strong`: rows that the reader should find first;
    `gist`: what the table shows, on a line, told while it is folded.
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
    """One choice of a plot, such as a task: its name, its traces as plotly takes them."""

    name: str
    traces: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A plot, its views to choose from, plotly's layout of them all; `alt` says in words what is to be seen.

    labelled: curves are named at their ends instead of in a legend, and those that `plots.further` marks are shown when
    they are asked for.
    """

    title: str
    alt: str
    views: Sequence[PlotView]
    layout: dict[str, Any] = field(default_factory=dict)
    labelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values, a line each."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled part of the page. `cites`: the table or figure of the paper that it is; `prose`: how to read it; `lead`:
    whether the page shows it in its full width, its prose open.
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
            raise ValueError(f"section: expected a key of small letters, digits and hyphens, got {self.key!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """One figure that a reader should know: its name, the figure, what it is compared with."""

    name: str
    figure: str
    beside: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole page. verdict: what it comes to, in a sentence; figures: of the drafters, in the form of the JSON of
    `rescore run`: "overall" and "tasks".
    """

    title: str
    subtitle: str
    verdict: str
    tiles: Sequence[Tile]
    sections: Sequence[Section]
    figures: dict[str, Any] = field(default_factory=dict)
