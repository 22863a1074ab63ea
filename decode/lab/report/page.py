"""The report as one HTML file that works from disk and fetches nothing, as Markdown, and as JSON."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from html import escape
from importlib.resources import files
from typing import Any

from rescore.decode.lab.replay.figures import Interval
from rescore.decode.lab.report.content import Curve, Plot, Report, Section, Table
from rescore.lattice.extras import needed_for
from rescore.lattice.svg import clean

STYLES = ("page.css", "browser.css")
SCRIPTS = ("tables.js", "plots.js", "browser.js")
SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")
FORMAT, VERSION = "rescore-report", 4


def page(report: Report) -> str:
    """The page's HTML. ImportError if plotly or jinja2 is not installed."""
    found = (
        templates(text)
        .get_template("page.html")
        .render(
            report=report,
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
    """The data of the scripts: {"plots": {key: `Plot`, its views as pairs}, "browser": .. or None}."""
    plots = {
        f"{section.key}-{number}": asdict(plot)
        for section in report.sections
        for number, plot in enumerate(section.plots)
    }
    return {
        "plots": {key: {**plot, "views": [*plot["views"].items()]} for key, plot in plots.items()},
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
    made.filters["texts"] = _texts
    return made


def _texts(table: Table) -> list[bool]:
    """Of every column, whether it has no figures."""
    return [all(cell.value is None for cell in column) for column in zip(*table.cells)] or [True] * len(table.headers)


def _static(name: str) -> str:
    return (files("rescore.decode.lab.report") / "static" / name).read_text(encoding="utf-8")


def report_json(report: Report) -> dict[str, Any]:
    """The report's prose, tables and plots by section, and the `figures` of every drafter, with the keys of the JSON of
    `rescore run`. The lattice browser's data are not included.
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": report.title,
        "subtitle": report.subtitle,
        "verdict": report.verdict,
        "figures": report.figures,
        "sections": [_section(section) for section in report.sections],
    }


def _section(section: Section) -> dict[str, Any]:
    return {
        "key": section.key,
        "title": section.title,
        "prose": list(section.prose),
        "tables": [_table(table) for table in section.all_tables],
        "plots": [_plot(plot) for plot in section.plots],
    }


def _table(table: Table) -> dict[str, Any]:
    """Values of cells have full precision; they are None for text."""
    rows = [[asdict(cell) for cell in row] for row in table.cells]
    return {"title": table.title, "gist": table.gist, "headers": list(table.headers), "rows": rows}


def _plot(plot: Plot) -> dict[str, Any]:
    views = [{"name": name, "curves": [_curve(curve) for curve in curves]} for name, curves in plot.views.items()]
    return {"title": plot.title, "x": plot.x, "y": plot.y, "views": views}


def _curve(curve: Curve) -> dict[str, Any]:
    """Points of a curve or bars of a series; low and high are the interval's ends, None without one."""
    y = [one.value if isinstance(one, Interval) else one for one in curve.y]
    low, high = ([getattr(one, end, None) for one in curve.y] for end in ("low", "high"))
    return {"name": curve.name, "x": list(curve.x), "y": y, "low": low, "high": high}
