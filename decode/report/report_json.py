"""All figures of a report as JSON, for programs (docs/reference/report.schema.json)."""

from __future__ import annotations

from html import unescape
from typing import Any

from rescore.decode.report.content import Cell, Facts, Plot, Report, Section, Table

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
