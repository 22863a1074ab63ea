"""Combines drawings into one: stacked for a page, or side by side on a 16:9 sheet for a slide."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rescore.lattice import svg

GAP = 12  # px between drawings
WIDE = 16 / 9


def below(drawings: Sequence[str], title: str) -> str:
    """Stacks drawings (SVG texts of this package), left-aligned, into one SVG text."""
    y, width, body = 0.0, 0.0, []
    for drawing in drawings:
        own_width, own_height = size(drawing)
        body.append(_placed(drawing, 0, y, own_width, own_height))
        y, width = y + own_height + GAP, max(width, own_width)
    return svg.document(width, y - GAP, title, body)


def wide(first: str, others: Sequence[str], title: str) -> str:
    """Puts the first drawing left and the others, stacked, right of it on a 16:9 sheet; returns the SVG text."""
    left_width, left_height = size(first)
    right = below(others, title)
    right_width, right_height = size(right)
    scale = left_height / right_height if right_height > left_height else 1.0  # no higher than the first
    content_width, content_height = left_width + GAP + scale * right_width, max(left_height, scale * right_height)
    width = max(content_width, WIDE * content_height)
    height = width / WIDE
    x, y = (width - content_width) / 2, (height - content_height) / 2
    body = [
        _placed(first, x, y, left_width, left_height),
        _placed(right, x + left_width + GAP, y, scale * right_width, scale * right_height),
    ]
    return svg.document(width, height, title, body)


def size(drawing: str) -> tuple[float, float]:
    """Width and height in px. ValueError if the text is not a drawing of this package."""
    found = re.match(r'<svg [^>]*?width="([\d.]+)" height="([\d.]+)"', drawing)
    if found is None:
        raise ValueError(f"drawing: expected an SVG text that begins with its size in px, got {drawing[:40]!r}")
    return float(found[1]), float(found[2])


def _placed(drawing: str, x: float, y: float, width: float, height: float) -> str:
    """The drawing nested in another one and scaled to this size, without its style, which the other one provides."""
    inside = re.sub(r"<style>.*?</style>\n", "", drawing, flags=re.DOTALL)
    return re.sub(
        r' width="[\d.]+" height="[\d.]+"',
        f' x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"',
        inside,
        count=1,
    ).rstrip()
