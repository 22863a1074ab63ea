"""The parts of a report: sections of prose, plots and tables. HTML, Markdown and JSON are written from them.

All texts are plain and untrusted (names of tasks and tokens come from files); the writers escape them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rescore.decode.lab.replay.figures import Interval

Value = str | float | Interval | None


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table: its text, its sort key (None: the text), and a note below it such as an interval."""

    text: str
    value: float | None = None
    note: str = ""

    @classmethod
    def of(cls, value: Value, form: str) -> Cell:
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


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values under headers; the first column names the row.

    forms   formats of the columns by header, others have two decimals; or of all columns
    strong  numbers of the rows to emphasise
    gist    the table's main result in one line, shown while it is folded
    open    whether the page shows it unfolded
    """

    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Value]]
    forms: Mapping[str, str] | str = ".2f"
    strong: frozenset[int] = frozenset()
    gist: str = ""
    open: bool = False

    @property
    def cells(self) -> list[list[Cell]]:
        """The rows as texts. ValueError if one is not as long as the headers."""
        forms = self.forms
        of_columns = [forms if isinstance(forms, str) else forms.get(header, ".2f") for header in self.headers]
        return [[Cell.of(value, form) for value, form in zip(row, of_columns, strict=True)] for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points joined by a line, or bars; values with an interval have error bars.

    series  names the colour; for ordered curves, its place in 0..1 on a scale of colours
    mode    plotly's, or "bars"
    texts   shown when the pointer is over a point
    hidden  until it is chosen in the legend
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float | Interval | None]
    series: str | float = "tree"
    dash: str = "solid"
    mode: str = "lines+markers"
    texts: Sequence[str] = ()
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Curves of several views, such as tasks; the first is shown first.

    x, y          titles of the axes
    percent       whether y are shares
    xaxis, yaxis  further options of plotly's axes
    stacked       whether bars are stacked
    tabled        whether the first view is also a table, a row for each x; for curves over the same x
    """

    title: str
    x: str
    y: str
    views: Mapping[str, Sequence[Curve]]
    percent: bool = False
    xaxis: Mapping[str, Any] = field(default_factory=dict)
    yaxis: Mapping[str, Any] = field(default_factory=dict)
    stacked: bool = False
    tabled: bool = True

    @property
    def table(self) -> Table:
        """The figures of the first view."""
        view, curves = next(iter(self.views.items()))
        places = sorted({x: None for curve in curves for x in curve.x}, key=lambda x: 0 if isinstance(x, str) else x)
        columns = [dict(zip(curve.x, curve.y)) for curve in curves]
        rows = [(x if isinstance(x, str) else f"{x:g}", *(column.get(x) for column in columns)) for x in places]
        headers = (self.x, *(curve.name for curve in curves))
        return Table(f"{self.title}, {view}", headers, rows, ".1%" if self.percent else ".3f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled section of the page.

    prose  how to read it
    lead   whether the page shows its prose unfolded
    """

    key: str
    title: str
    prose: Sequence[str]
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    browser: dict[str, Any] | None = None
    lead: bool = False

    @property
    def all_tables(self) -> list[Table]:
        """Those of the plots first."""
        return [*(plot.table for plot in self.plots if plot.tabled), *self.tables]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The whole report.

    verdict  the result in one sentence
    figures  of the drafters, as "overall" and "tasks" in the JSON of `rescore run`
    """

    title: str
    subtitle: str
    verdict: str
    sections: Sequence[Section]
    figures: dict[str, Any] = field(default_factory=dict)
