"""Shapes that the drawings of docs/how/ share."""

from __future__ import annotations

from pathlib import Path

from rescore.lattice import svg
from rescore.lm import example

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


def chip(x: float, y: float, width: float, label: str, note: str = "", frame: str = "frame") -> list[str]:
    """A token or a state, 26 px high, centred on y; the note stands small at its right end."""
    kind = "true-text token" if frame == "true-frame" else "text token"
    body = [svg.rect(x, y - 13, width, 26, "chip"), svg.rect(x, y - 13, width, 26, frame)]
    if note:
        return [*body, svg.text(x + 10, y + 4, label, kind), svg.text(x + width - 8, y + 4, note, "small muted end")]
    return [*body, svg.text(x + width / 2, y + 4, label, f"{kind} middle")]


def arrow(x: float, y: float, to_x: float, kind: str = "line edge") -> str:
    """A horizontal arrow from x to to_x."""
    back = -6 if to_x > x else 6
    return svg.path(svg.move(x, y) + svg.across(to_x) + f"m{back} -4l{-back} 4l{back} 4", kind)


def bar(x: float, y: float, width: float) -> str:
    """A horizontal bar, centred on y."""
    line = svg.path(svg.move(x, y) + svg.across(x + max(width, 1)), "after-1")
    return line.replace("/>", ' style="stroke-width: 11"/>')


def words(tokens: tuple[int, ...]) -> str:
    """The worked example's words of a context; the empty one is the root."""
    return " ".join(example.WORDS[token] for token in tokens) or "root"


def write(name: str, content: str) -> None:
    (PICTURES / name).write_text(content, encoding="utf-8")
    print(PICTURES / name)
