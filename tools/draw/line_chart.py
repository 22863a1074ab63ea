"""Line charts by matplotlib, with lines named at their ends and reproducible files."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rescore.lattice import svg
from rescore.lattice.atomic import replacing

SIZE = (7.2, 3.8)  # inches
LABEL_PITCH = 12  # points between the labels of two lines that end at the same height
ROUND = [digit * 10.0**power for power in range(-2, 10) for digit in (1, 2, 5)]
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rescore",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named line: points (x, y) and a colour of `svg.COLOURS`."""

    name: str
    colour: str
    points: list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis: its title, whether it is logarithmic, and its ticks (None for round numbers)."""

    title: str = ""
    logarithmic: bool = False
    ticks: list[float] | None = None


def chart(title: str, x_axis: Axis, y_axis: Axis, lines: list[Line], form: str = ".2f") -> Figure:
    """A chart of lines, each named at its end with its last value in the format `form`."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        axes.set_title(title, loc="left", fontweight="bold")
        axes.grid(color="#e6eaee")
        for line in lines:
            x, y = zip(*line.points)
            axes.plot(x, y, color=svg.COLOURS[line.colour][1], linewidth=2, label=line.name)
        _scale(axes.xaxis, x_axis, [x for line in lines for x, _ in line.points])
        _scale(axes.yaxis, y_axis, [y for line in lines for _, y in line.points])
        _name_ends(axes, lines, form)
    return figure


def save(figure: Figure, path: Path) -> None:
    with matplotlib.rc_context(STYLE), replacing(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def _scale(axis, given: Axis, values: list[float]) -> None:
    axis.set_label_text(given.title)
    if given.logarithmic:
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
        ticks = given.ticks or [one for one in ROUND if min(values) <= one <= max(values)]
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
    elif given.ticks:
        axis.set_major_locator(FixedLocator(given.ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))


def _name_ends(axes, lines: list[Line], form: str) -> None:
    """Writes each line's name at its last point, moved up if names would overlap."""
    ends = [axes.transData.transform(line.points[-1])[1] * 72 / axes.figure.dpi for line in lines]
    for line, height, end in zip(lines, apart(ends), ends):
        axes.annotate(
            f"{line.name}: {line.points[-1][1]:{form}}",
            xy=line.points[-1],
            xytext=(8, height - end),
            textcoords="offset points",
            verticalalignment="center",
            color=svg.COLOURS[line.colour][1],
            annotation_clip=False,
        )


def number(value: float) -> str:
    """A tick label."""
    return f"{value:g}" if value < 1e5 else f"{value / 1e6:g}M"


def apart(heights: list[float]) -> list[float]:
    """The heights, moved up where labels would overlap."""
    placed = dict.fromkeys(range(len(heights)), 0.0)
    last = -math.inf
    for i in sorted(placed, key=heights.__getitem__):
        last = placed[i] = max(heights[i], last + LABEL_PITCH)
    return list(placed.values())
