"""Plotly traces and layouts, built without plotly. A trace names its series; the page sets its colour."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from html import escape
from typing import Any

from rescore.decode.draft.names import split
from rescore.decode.replay.figures import Interval
from rescore.decode.report.content import PlotView

Value = float | Interval | None

# The colour, by name in the page's style, and the dash of a drafter's curve, in the legend's order.
STYLES = {
    "blend tuned": ("tuned", "solid"),
    "blend": ("open", "solid"),
    "blend-without-heads": ("lm-text", "dash"),
    "blend-without-heads tuned": ("lm-text", "dashdot"),
    "blend-without-lm": ("lm-text", "dot"),
    "blend-without-lm tuned": ("lm-text", "longdash"),
    "tree tuned": ("tuned", "dash"),
    "tree": ("tree", "solid"),
    "heads-tree": ("tree-base", "solid"),
    "pushed-tree": ("pushed", "dot"),
    "medusa-tree": ("medusa", "dash"),
    "eagle-2-tree": ("eagle", "dashdot"),
    "parallel-rescored": ("paths", "solid"),
    "parallel-rescored tuned": ("paths", "dash"),
    "parallel-base": ("paths-base", "solid"),
    "neural": ("neural", "dot"),
    "lm-alone": ("lm-alone", "solid"),
    "suffix-decoding": ("pushed", "solid"),
    "token-recycling": ("eagle", "solid"),
    "prompt-lookup": ("paths-base", "solid"),
    "oracle": ("oracle", "dash"),
}
# One path is a point on the curve of several.
SEVERAL = {
    "rescored": "parallel-rescored",
    "rescored tuned": "parallel-rescored tuned",
    "base": "parallel-base",
    "neural beam": "neural",
}


def curve_of(name: str) -> str:
    """The title of the curve that a drafter is a point of: "tree 16" and "tree 64" are on "tree"."""
    stem, _ = split(name)
    return SEVERAL.get(stem, stem)


def style(name: str) -> dict[str, str]:
    """The series and dash of a drafter's curve."""
    series, dash = STYLES.get(curve_of(name), ("other", "solid"))
    return {"series": series, "dash": dash}


def curves(names: Collection[str]) -> dict[str, list[str]]:
    """The drafters of each curve, by title, in the legend's order; others come last."""
    titles = [curve_of(name) for name in names]
    order = [*(title for title in STYLES if title in titles), *(title for title in titles if title not in STYLES)]
    return {title: [name for name in names if curve_of(name) == title] for title in order}


def caption(content: str) -> str:
    """Escapes a text for plotly, which interprets some HTML tags."""
    return escape(content, quote=False)


def curve(
    name: str,
    x: Sequence[float | str],
    y: Sequence[Value],
    *,
    series: str = "tree",
    dash: str = "solid",
    mode: str = "lines+markers",
    texts: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Points joined by a line, with error bars where y has intervals.

    texts   shown when the pointer is over a point
    labels  shown above a point (mode "markers+text")
    """
    trace = _trace("scatter", name, x, y, series) | {"mode": mode, "line": {"dash": dash}}
    if texts:
        trace["text"] = [caption(one) for one in texts]
        trace["hovertemplate"] = "%{text}<br>%{y}<extra></extra>"
    if labels:
        trace |= {"text": [caption(one) for one in labels], "textposition": "top center", "cliponaxis": False}
    return trace


def bars(name: str, x: Sequence[str], y: Sequence[Value], *, series: str = "tree") -> dict[str, Any]:
    return _trace("bar", name, x, y, series)


def shaded(trace: dict[str, Any], share: float) -> dict[str, Any]:
    """The trace with a colour from a scale, at `share` in 0..1; for ordered curves."""
    return {**trace, "meta": {"shade": round(share, 4)}}


def further(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace, shown when it is chosen in the legend."""
    return {**trace, "visible": "legendonly"}


def views(
    tasks: Sequence[str], traces: Callable[[str | None], list[dict[str, Any]]], whole: str = "mean over tasks"
) -> list[PlotView]:
    """A view of all tasks together and, if there are several, one of each. traces: of a task, or of all (None)."""
    each = [PlotView(name=task, traces=traces(task)) for task in tasks] if len(tasks) > 1 else []
    return [PlotView(name=whole, traces=traces(None)), *each]


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


def powers(values: Sequence[float], axis: str = "x") -> dict[str, Any]:
    """Options of a logarithmic axis with a tick at each value."""
    ticks = sorted(set(values))
    return {f"{axis}_type": "log", f"{axis}_tickvals": ticks, f"{axis}_ticktext": [f"{tick:g}" for tick in ticks]}


def _trace(kind: str, name: str, x: Sequence[float | str], y: Sequence[Value], series: str) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": kind,
        "name": caption(name),
        "x": [caption(value) if isinstance(value, str) else value for value in x],
        "y": [value.value if isinstance(value, Interval) else value for value in y],
        "meta": {"series": series},
    }
    bars = [_bar(value) for value in y]
    if any(map(any, bars)):
        below, above = zip(*bars)
        trace["error_y"] = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        trace["error_y"] |= {"thickness": 1.2, "width": 3}
    return trace


def _bar(value: Value) -> tuple[float, float]:
    """The lengths of an error bar, below and above."""
    if not isinstance(value, Interval) or value.low is None or value.high is None:
        return 0.0, 0.0
    return max(0.0, value.value - value.low), max(0.0, value.high - value.value)
