"""Plotly traces and layouts, built without plotly. A trace names its series; the page sets its colour."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

Interval = tuple[float, float]


def caption(content: str) -> str:
    """Escapes a text for plotly, which interprets some HTML tags."""
    return escape(content, quote=False)


def curve(
    name: str,
    x: Sequence[float | str],
    y: Sequence[float | None],
    *,
    series: str = "tree",
    intervals: Sequence[Interval | None] | None = None,
    dash: str = "solid",
    mode: str = "lines+markers",
    texts: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Points joined by a line, with error bars where intervals are given.

    texts   shown when the pointer is over a point
    labels  shown above a point (mode "markers+text")
    """
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": mode,
        "name": caption(name),
        "x": [caption(value) if isinstance(value, str) else value for value in x],
        "y": list(y),
        "line": {"dash": dash},
        "meta": {"series": series},
    }
    if texts:
        trace["text"] = [caption(one) for one in texts]
        trace["hovertemplate"] = "%{text}<br>%{y}<extra></extra>"
    if labels:
        trace |= {"text": [caption(one) for one in labels], "textposition": "top center", "cliponaxis": False}
    if intervals and any(intervals):
        trace["error_y"] = _bars(y, intervals)
    return trace


def shaded(trace: dict[str, Any], share: float) -> dict[str, Any]:
    """The trace with a colour from a scale, at `share` in 0..1; for ordered curves."""
    return {**trace, "meta": {"shade": round(share, 4)}}


def further(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace, hidden until it is chosen in the legend."""
    return {**trace, "visible": "legendonly"}


def bars(
    name: str,
    x: Sequence[str],
    y: Sequence[float | None],
    *,
    series: str = "tree",
    intervals: Sequence[Interval | None] | None = None,
) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "bar",
        "name": caption(name),
        "x": [caption(value) for value in x],
        "y": list(y),
        "meta": {"series": series},
    }
    if intervals and any(intervals):
        trace["error_y"] = _bars(y, intervals)
    return trace


def axes(x: str, y: str, **more: Any) -> dict[str, Any]:
    """A layout with titled axes and further options, such as x_type="log", y_tickformat=".0%", barmode="stack"."""
    layout: dict[str, Any] = {"xaxis": {"title": {"text": caption(x)}}, "yaxis": {"title": {"text": caption(y)}}}
    for name, value in more.items():
        axis, sign, key = name.partition("_")
        if sign and axis in ("x", "y"):
            layout[f"{axis}axis"][key] = value
        else:
            layout[name] = value
    return layout


def powers(values: Sequence[float], **more: Any) -> dict[str, Any]:
    """Options of a logarithmic x axis with a tick at each value."""
    ticks = sorted(set(values))
    return {"x_type": "log", "x_tickvals": ticks, "x_ticktext": [f"{tick:g}" for tick in ticks], **more}


def _bars(y: Sequence[float | None], intervals: Sequence[Interval | None]) -> dict[str, Any]:
    above = [0.0 if pair is None or value is None else max(0.0, pair[1] - value) for value, pair in zip(y, intervals)]
    below = [0.0 if pair is None or value is None else max(0.0, value - pair[0]) for value, pair in zip(y, intervals)]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.2, "width": 3}
