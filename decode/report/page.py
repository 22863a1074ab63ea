"""The report as one HTML file that works from disk and fetches nothing, and as Markdown for papers."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable
from html import escape
from importlib.resources import files
from typing import Any

from rescore.decode.report.content import Facts, Plot, Report, Table
from rescore.lattice.extras import needed_for
from rescore.lattice.svg import clean

SHORTCUTS = 4  # sections linked in the header of a wide page; the menu has all
STYLES = ("page.css", "browser.css")
SCRIPTS = ("tables.js", "plots.js", "browser.js")
SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")


def page(report: Report) -> str:
    """The page's HTML. ImportError if plotly or jinja2 is not installed."""
    return (
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
