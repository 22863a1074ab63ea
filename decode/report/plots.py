"""Plots as plotly traces and layouts, built without plotly; colours and curves of the drafters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import Any

from rescore.decode.draft.names import sized, split
from rescore.decode.replay.figures import EQUAL, Interval
from rescore.decode.report.content import Curve, Plot

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


# The drafters in tiles and plots of a few, and the emphasised rows: of each group the first that was replayed.
MAIN = (
    ("base",),
    ("parallel-rescored", "parallel-base"),
    *((sized("tree tuned", n), sized("tree", n), sized("heads-tree", n)) for n in EQUAL),
    *((sized("blend tuned", n), sized("blend", n)) for n in EQUAL),
    ("prompt-lookup",),
    ("token-recycling",),
    *((sized("suffix-decoding", n),) for n in EQUAL),
    ("oracle",),
)
DOUBLED = tuple(2**i for i in range(20))


def curve_of(name: str) -> str:
    """The title of the curve that a drafter is a point of: "tree 16" and "tree 64" are on "tree"."""
    stem, _ = split(name)
    return SEVERAL.get(stem, stem)


def style(name: str) -> tuple[str, str]:
    """The series and dash of a drafter's curve."""
    return STYLES.get(curve_of(name), ("other", "solid"))


def curves(names: Collection[str]) -> dict[str, list[str]]:
    """The drafters of each curve, by title, in the legend's order; others come last."""
    titles = [curve_of(name) for name in names]
    order = [*(title for title in STYLES if title in titles), *(title for title in titles if title not in STYLES)]
    return {title: [name for name in names if curve_of(name) == title] for title in order}


def main_drafters(names: Collection[str]) -> list[str]:
    return [found for group in MAIN for found in [next((name for name in group if name in names), None)] if found]


def ordered(values: Mapping[str, Sequence[float | Interval | None]], x: Sequence[float | str]) -> list[Curve]:
    """Curves over the same x with colours from a scale, in order."""
    last = max(len(values) - 1, 1)
    return [Curve(name=name, x=x, y=y, series=place / last) for place, (name, y) in enumerate(values.items())]


def views(
    tasks: Sequence[str], curves: Callable[[str | None], Sequence[Curve]], whole: str = "mean over tasks"
) -> dict[str, Sequence[Curve]]:
    """A view of all tasks together and, if there are several, one of each. curves: of a task, or of all (None)."""
    return {whole: curves(None)} | ({task: curves(task) for task in tasks} if len(tasks) > 1 else {})


def logarithmic(ticks: Sequence[float] = DOUBLED) -> dict[str, Any]:
    """A logarithmic axis with these ticks."""
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def figure(plot: Plot) -> dict[str, Any]:
    """The plot for the page: {"views": [{"name", "traces": plotly's}], "layout": plotly's}."""
    axes = {
        "xaxis": _titled(plot.x, plot.xaxis),
        "yaxis": _titled(plot.y, plot.yaxis) | ({"tickformat": ".0%"} if plot.percent else {}),
    }
    return {
        "views": [{"name": name, "traces": [trace(one) for one in curves]} for name, curves in plot.views.items()],
        "layout": axes | ({"barmode": "stack"} if plot.stacked else {}),
    }


def _titled(title: str, axis: Mapping[str, Any]) -> dict[str, Any]:
    return {"title": {"text": caption(title)}, **axis}


def trace(curve: Curve) -> dict[str, Any]:
    """A plotly trace. It names its series; the page sets the colour."""
    low, middle, high = points(curve)
    found: dict[str, Any] = {
        "type": "bar" if curve.mode == "bars" else "scatter",
        "name": caption(curve.name),
        "x": [caption(value) if isinstance(value, str) else value for value in curve.x],
        "y": middle,
        "meta": {"series": curve.series},
        "visible": "legendonly" if curve.hidden else True,
    }
    if curve.mode != "bars":
        found |= {"mode": curve.mode, "line": {"dash": curve.dash}}
    if curve.texts:
        found |= {"text": [*map(caption, curve.texts)], "hovertemplate": "%{text}<br>%{y}<extra></extra>"}
    below, above = _lengths(low, middle), _lengths(middle, high)
    if any(below + above):
        found["error_y"] = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
        found["error_y"] |= {"thickness": 1.2, "width": 3}
    return found


def points(curve: Curve) -> tuple[list[float | None], ...]:
    """The ends and values of the points: low, y, high."""
    low, high = ([getattr(one, end, None) for one in curve.y] for end in ("low", "high"))
    return low, [one.value if isinstance(one, Interval) else one for one in curve.y], high


def _lengths(low: Sequence[float | None], high: Sequence[float | None]) -> list[float]:
    """Of error bars between these; 0 without one."""
    return [0.0 if a is None or b is None else max(0.0, b - a) for a, b in zip(low, high)]


def caption(content: str) -> str:
    """Escapes a text for plotly, which interprets some HTML tags."""
    return escape(content, quote=False)
