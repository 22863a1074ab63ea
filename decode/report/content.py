"""The parts of a report: sections of prose, tables and plots. HTML, Markdown and JSON are written from them.

All texts are plain and untrusted (names of tasks and tokens come from files); the writers escape them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rescore.decode.replay.figures import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values, one pair per line."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, its sort key (None: the text), and a note below it such as an interval."""

    text: str
    value: float | None = None
    note: str = ""

    @classmethod
    def of(cls, value: str | float | Interval | None, form: str = ".2f") -> Cell:
        """The cell of a text, or of a number in a format: of Python's, or "p" for a p-value. Whole numbers are counts.
        The ends of an interval are the note.
        """
        if value is None:
            return cls("–")
        if isinstance(value, str):
            return cls(value)
        if isinstance(value, Interval):
            return cls(format(value.value, form), float(value.value), ends(value, form))
        if isinstance(value, int):
            return cls(f"{value:,}", float(value))
        if form == "p":
            return cls("< 0.001" if value < 0.001 else f"{value:.3f}", float(value))
        return cls(format(value, form), float(value))


def ends(interval: Interval, form: str) -> str:
    """An interval's ends, such as "1.2–1.4"; empty without them."""
    if interval.low is None or interval.high is None:
        return ""
    low, high = format(interval.low, form), format(interval.high, form)
    return f"{low.rstrip('%')}{' to ' if interval.low < 0 else '–'}{high}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells under headers; the first column names the row.

    strong  numbers of the rows to emphasise
    gist    the table's main result in one line, shown while it is folded
    open    whether the page shows it unfolded
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    strong: frozenset[int] = frozenset()
    gist: str = ""
    open: bool = False

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.headers):
                raise ValueError(
                    f"table {self.title!r}, row {number}: expected {len(self.headers)} cells, got {len(row)}"
                )

    @classmethod
    def of(
        cls,
        title: str,
        headers: Sequence[str],
        rows: Sequence[Sequence[Any]],
        forms: Mapping[str, str] | str = ".2f",
        **more: Any,
    ) -> Table:
        """The table of these values, as `Cell.of` takes them.

        forms: of the columns by header, others with two decimals; or of all columns.
        """
        of_columns = [forms if isinstance(forms, str) else forms.get(header, ".2f") for header in headers]
        cells = [[Cell.of(value, form) for value, form in zip(row, of_columns, strict=True)] for row in rows]
        return cls(title=title, headers=headers, rows=cells, **more)


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
class Section:
    """A titled section of the page.

    prose  how to read it
    cites  the corresponding tables and figures of the paper
    lead   whether the page shows its prose unfolded
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
