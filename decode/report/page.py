"""The whole page: one HTML file that works from disk and fetches nothing."""

from __future__ import annotations

import base64
import gzip
import json
from importlib.resources import files
from string import Template
from typing import Any

from rescore.decode.report import html
from rescore.decode.report.content import Plot, Report
from rescore.lattice.extras import needed_for

SHORTCUTS = 4  # sections linked in the header of a wide page; the menu has all
STYLES = ("page.css", "browser.css")
SCRIPTS = ("menu.js", "theme.js", "export.js", "tables.js", "legend.js", "plots.js", "tree.js", "browser.js")


def page(report: Report) -> str:
    """The page's HTML. ValueError if plotly is not installed."""
    return Template(_static("page.html")).substitute(
        title=html.text(report.title),
        styles="\n".join(map(_static, STYLES)),
        navigation=html.navigation(report.sections),
        shortcuts=html.navigation(report.sections[:SHORTCUTS]),
        body=html.body(report),
        data=embedded(data(report)),
        plotly=packed(plotly_source()),
        scripts="\n".join(map(_static, SCRIPTS)),
    )


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


def _static(name: str) -> str:
    return (files("rescore.decode.report") / "static" / name).read_text(encoding="utf-8")
