"""Line charts as SVG, in the look of the other drawings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rescore.lattice import svg

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 380, 56, 180, 56, 48
LABEL_PITCH = 14  # px between the labels of two lines that end at the same height
ROUND = [digit * 10.0**power for power in range(-2, 10) for digit in (1, 2, 5)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Points (x, y) under a name, drawn in a colour of `svg.COLOURS`."""

    name: str
    colour: str
    points: list[tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What it is called, whether it is logarithmic, and where its numbers stand (None: at round ones)."""

    title: str = ""
    logarithmic: bool = False
    ticks: list[float] | None = None

    def scale(self, value: float) -> float:
        return math.log(value) if self.logarithmic else value

    def numbers(self, values: list[float], *, from_zero: bool) -> list[float]:
        if self.ticks is not None:
            return self.ticks
        if self.logarithmic:
            return [one for one in ROUND if min(values) <= one <= max(values)]
        return ticks(0 if from_zero else min(values), max(values))


def chart(title: str, x_axis: Axis, y_axis: Axis, lines: list[Line], form: str = ".2f") -> str:
    """Lines over one pair of axes, each named at its end with its last value as `form` writes it."""
    points = [point for line in lines for point in line.points]
    xs, ys = ([point[axis] for point in points] for axis in (0, 1))
    x_ticks, y_ticks = x_axis.numbers(xs, from_zero=True), y_axis.numbers(ys, from_zero=False)
    low_x, high_x = x_axis.scale(min(xs)) if x_axis.logarithmic else 0.0, x_axis.scale(max(xs))
    low_y, high_y = y_axis.scale(min(ys + y_ticks)), y_axis.scale(max(ys + y_ticks))

    def across(x: float) -> float:
        return LEFT + (x_axis.scale(x) - low_x) / (high_x - low_x or 1.0) * (WIDTH - LEFT - RIGHT)

    def down(y: float) -> float:
        return TOP + (high_y - y_axis.scale(y)) / (high_y - low_y or 1.0) * (HEIGHT - TOP - BOTTOM)

    body = [svg.text(20, 30, title, "text title")]
    if y_axis.title:
        body.append(svg.text(20, 48, y_axis.title, "muted small"))
    for y in y_ticks:
        body += [
            svg.path(f"M{LEFT} {down(y):.1f}H{WIDTH - RIGHT}", "frame"),
            svg.text(LEFT - 8, down(y) + 4, number(y), "muted small end"),
        ]
    body += [svg.text(across(x), HEIGHT - BOTTOM + 18, number(x), "muted small middle") for x in x_ticks]
    body.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_axis.title, "muted middle"))
    for line, height in zip(lines, apart([down(line.points[-1][1]) for line in lines])):
        places = [f"{across(x):.1f} {down(y):.1f}" for x, y in line.points]
        body.append(svg.path("M" + "L".join(places), f"line {line.colour}"))
        body.append(svg.path(f"M{WIDTH - RIGHT + 8} {height:.1f}h12", f"line {line.colour}"))
        body.append(svg.text(WIDTH - RIGHT + 26, height + 4, f"{line.name}: {line.points[-1][1]:{form}}", "text small"))
    return svg.document(WIDTH, HEIGHT, title, body)


def number(value: float) -> str:
    """A number at an axis."""
    return f"{value:g}" if value < 1e5 else f"{value / 1e6:g}M"


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between `low` and `high`."""
    rough = (high - low) / 5
    step = min(
        (size * 10 ** math.floor(math.log10(rough)) for size in (1, 2, 5, 10)), key=lambda size: abs(size - rough)
    )
    return [round(i * step, 6) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def apart(heights: list[float]) -> list[float]:
    """The same heights in px, moved down where labels would touch."""
    placed = dict.fromkeys(range(len(heights)), 0.0)
    last = -math.inf
    for i in sorted(placed, key=heights.__getitem__):
        last = placed[i] = max(heights[i], last + LABEL_PITCH)
    return list(placed.values())
