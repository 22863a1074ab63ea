"""The report as one HTML file that works from disk and fetches nothing, as Markdown, and as JSON."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from html import escape, unescape
from importlib.resources import files
from typing import Any

from rescore.decode.report.content import Cell, Facts, Plot, Report, Section, Table
from rescore.lattice.extras import needed_for
from rescore.lattice.svg import clean

SHORTCUTS = 4  # sections linked in the header of a wide page; the menu has all
STYLES = ("page.css", "browser.css")
SCRIPTS = ("tables.js", "plots.js", "browser.js")
SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")


def page(report: Report) -> str:
    """The page's HTML. ImportError if plotly or jinja2 is not installed."""
    found = (
        templates(text)
        .get_template("page.html")
        .render(
            report=report,
            shortcuts=report.sections[:SHORTCUTS],
            styles="\n".join(map(_static, STYLES)),
            data=embedded(data(report)),
            plotly=packed(plotly_source()),
            scripts="\n".join(map(_static, SCRIPTS)),
        )
    )
    return found.lstrip()


def markdown(report: Report) -> str:
    """The report's prose and tables, without plots and lattice browser. ImportError if jinja2 is not installed."""
    return templates(plain).get_template("report.md").render(report=report).rstrip() + "\n"


def data(report: Report) -> dict[str, Any]:
    """The data of the scripts: {"plots": {key: ..}, "browser": .. or None}."""
    plots = {
        f"{section.key}-{number}": {
            "views": [{"name": view.name, "traces": list(view.traces)} for view in part.views],
            "layout": part.layout,
        }
        for section in report.sections
        for number, part in enumerate(section.parts)
        if isinstance(part, Plot)
    }
    return {
        "plots": plots,
        "browser": next((section.browser for section in report.sections if section.browser is not None), None),
    }


def embedded(value: Any) -> str:
    """JSON that is safe in a script element: no text in it ends the element or opens a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def plotly_source() -> str:
    with needed_for("a page of plots"):
        from plotly.offline import get_plotlyjs
    return get_plotlyjs()


def packed(script: str) -> str:
    """A script as gzip in base64, less than half its size; unpacked in the browser."""
    return base64.b64encode(gzip.compress(script.encode(), compresslevel=9, mtime=0)).decode()


def text(content: str) -> str:
    """Escapes text for HTML. Line breaks, control characters and bidirectional overrides are made visible."""
    return escape(clean(content), quote=True)


def plain(content: str) -> str:
    """The content on one line, with Markdown characters escaped."""
    return SPECIAL.sub(r"\\\1", clean(content))


def templates(escaped: Callable[[str], str]) -> Any:
    """The jinja2 environment of the templates. Every value that they write passes `escaped`, once."""
    with needed_for("a report"):
        import jinja2
        from markupsafe import Markup

    def finalize(value: Any) -> Markup:
        return value if isinstance(value, Markup) else Markup(escaped(str(value)))

    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(_static),
        autoescape=True,  # what a macro returns is Markup, which is not escaped again
        finalize=finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.tests |= {kind.__name__.lower(): _instance_of(kind) for kind in (Table, Plot, Facts)}
    made.filters["texts"] = _texts
    return made


def _instance_of(kind: type) -> Callable[[Any], bool]:
    return lambda part: isinstance(part, kind)


def _texts(table: Table) -> list[bool]:
    """Of every column, whether it has no figures."""
    return [all(row[place].value is None for row in table.rows) for place in range(len(table.headers))]


def _static(name: str) -> str:
    return (files("rescore.decode.report") / "static" / name).read_text(encoding="utf-8")


FORMAT, VERSION = "rescore-report", 2


def report_json(report: Report) -> dict[str, Any]:
    """The report's prose, tables, plots and facts by section, and the `figures` of every drafter, with the keys of the
    JSON of `rescore run`. The lattice browser's data are not included.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": report.title,
        "subtitle": report.subtitle,
        "verdict": report.verdict,
        "tiles": [{"name": tile.name, "figure": tile.figure, "beside": tile.beside} for tile in report.tiles],
        "figures": report.figures,
        "sections": [_section(section) for section in report.sections],
    }


def _section(section: Section) -> dict[str, Any]:
    return {
        "key": section.key,
        "title": section.title,
        "cites": section.cites,
        "prose": list(section.prose),
        "tables": [_table(part) for part in section.parts if isinstance(part, Table)],
        "plots": [_plot(part) for part in section.parts if isinstance(part, Plot)],
        "facts": [{"title": part.title, "rows": dict(part.rows)} for part in section.parts if isinstance(part, Facts)],
    }


def _table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "gist": table.gist,
        "headers": list(table.headers),
        "rows": [[_cell(cell) for cell in row] for row in table.rows],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    """The cell; `value` has full precision, None for text."""
    return {"text": cell.text, "value": cell.value, "note": cell.note}


def _plot(plot: Plot) -> dict[str, Any]:
    return {
        "title": plot.title,
        "x": _title(plot, "xaxis"),
        "y": _title(plot, "yaxis"),
        "views": [{"name": view.name, "curves": [_curve(trace) for trace in view.traces]} for view in plot.views],
    }


def _title(plot: Plot, axis: str) -> str:
    return unescape(plot.layout.get(axis, {}).get("title", {}).get("text", ""))


def _curve(trace: dict[str, Any]) -> dict[str, Any]:
    """Points of a curve or bars of a series; low and high are the interval's ends, None without one."""
    low, high = _interval(trace)
    x = [unescape(value) if isinstance(value, str) else value for value in trace["x"]]
    return {"name": unescape(trace["name"]), "x": x, "y": list(trace["y"]), "low": low, "high": high}


def _interval(trace: dict[str, Any]) -> tuple[list[float | None], list[float | None]]:
    y, bars = trace["y"], trace.get("error_y")
    if bars is None:
        return [None] * len(y), [None] * len(y)
    return (
        [None if value is None else value - below for value, below in zip(y, bars["arrayminus"])],
        [None if value is None else value + above for value, above in zip(y, bars["array"])],
    )
