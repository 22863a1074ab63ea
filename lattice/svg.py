"""SVG building blocks of all drawings: one style for light and dark pages, XML-safe token labels, shapes; drawings
combined into one, stacked for a page or side by side on a 16:9 sheet for a slide.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from html import escape

FONT_SIZE = 12.5
CHARACTER = 7.6  # px, one cell of the monospaced font
LABEL_CELLS = 12  # longer tokens are shortened

Words = Sequence[str] | Callable[[int], str] | None

# class: (property, light, dark); hues after Okabe and Ito, which colour-blind readers can distinguish
COLOURS = {
    "page": ("fill", "#ffffff", "#0d1117"),
    "text": ("fill", "#1f2328", "#e6edf3"),
    "muted": ("fill", "#59636e", "#9aa4af"),
    "chip": ("fill", "#f6f8fa", "#161b22"),
    "frame": ("stroke", "#d1d9e0", "#3d444d"),
    "proposed": ("stroke", "#b3124f", "#ff86b0"),
    "bar": ("fill", "#d8e2ee", "#2c3a4b"),
    "true-frame": ("stroke", "#00795a", "#3fd3a4"),
    "true-text": ("fill", "#006c50", "#3fd3a4"),
    "before": ("stroke", "#c2410c", "#ff9a5c"),
    "after-1": ("stroke", "#0b62b8", "#6cb6ff"),
    "after-2": ("stroke", "#8a3ea8", "#d7a1f0"),
    "after-3": ("stroke", "#8a6d00", "#e3c04d"),
    "edge": ("stroke", "#aeb8c2", "#5b6570"),
}
SHAPE = f"""text {{ font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 12px; }}
.token {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {FONT_SIZE}px; }}
.small {{ font-size: 10.5px; }} .title {{ font-size: 15px; font-weight: 600; }} .end {{ text-anchor: end; }} \
.middle {{ text-anchor: middle; }}
.line {{ fill: none; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }} \
.frame {{ fill: none; }} .true-frame {{ fill: none; stroke-width: 2; }} \
.proposed {{ fill: none; stroke-dasharray: 4 3; }}
.path {{ fill: none; stroke-width: 3; stroke-linecap: round; stroke-linejoin: round; }}
.rejected {{ stroke-width: 2; stroke-dasharray: 0.5 5; }} .stop {{ stroke-width: 2.5; }}"""
GAP = 12  # px between drawings
WIDE = 16 / 9


def document(width: float, height: float, title: str, body: list[str]) -> str:
    """An SVG document of `width` x `height` px around `body`; the title is for screen readers."""
    light = " ".join(f".{name} {{ {key}: {value}; }}" for name, (key, value, _) in COLOURS.items())
    dark = " ".join(f".{name} {{ {key}: {value}; }}" for name, (key, _, value) in COLOURS.items())
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img">'
    )
    style = f"<style>\n{SHAPE}\n{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n</style>"
    page = f'<rect class="page" width="{_n(width)}" height="{_n(height)}" rx="8"/>'
    return "\n".join([head, f"<title>{escape(clean(title), quote=False)}</title>", style, page, *body, "</svg>"]) + "\n"


def text(x: float, y: float, content: str, kind: str = "text") -> str:
    return f'<text x="{_n(x)}" y="{_n(y)}" class="{kind}" xml:space="preserve">{escape(content, quote=False)}</text>'


def rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 5) -> str:
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}" class="{kind}"/>'


def path(points: str, kind: str) -> str:
    return f'<path d="{points}" class="{kind}"/>'


def curve(x: float, y: float, to_x: float, to_y: float) -> str:
    """Path data of an S-shaped step from the current point (x, y), horizontal at both ends."""
    middle = (x + to_x) / 2
    return f"C{_n(middle)} {_n(y)} {_n(middle)} {_n(to_y)} {_n(to_x)} {_n(to_y)}"


def move(x: float, y: float) -> str:
    return f"M{_n(x)} {_n(y)}"


def across(x: float) -> str:
    return f"H{_n(x)}"


def tick(x: float, y: float) -> str:
    """A check mark, 9 px wide, so that the truth is not marked by colour alone."""
    return path(f"M{_n(x)} {_n(y)}l3 3.5l5.5 -7.5", "line true-frame")


def dot(x: float, y: float, kind: str, radius: float = 4.5) -> str:
    return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" class="page {kind}"/>'


def clean(token: str) -> str:
    """A token's text as one visible line.

    Spaces at the ends become middle dots, line breaks and tabs arrows, and other control, format and unpaired
    characters escapes.
    """
    body = token.strip(" ")
    lead = len(token) - len(token.lstrip(" "))
    trail = len(token) - lead - len(body)
    return "·" * lead + "".join(_visible(c) for c in body) + "·" * trail


def label(token_id: int, words: Words, cells: int = LABEL_CELLS) -> str:
    """A token's label on a chip: its text (its id without `words`), at most `cells` cells wide."""
    if words is None:
        return str(token_id)
    if callable(words):
        word = words(token_id)
    elif 0 <= token_id < len(words):
        word = words[token_id]
    else:
        raise ValueError(
            f"words: expected an entry for token {token_id}, got {len(words)} entries; give the whole vocabulary"
        )
    return shorten(clean(word) or "∅", cells)


def shorten(content: str, cells: int) -> str:
    if cell_width(content) <= cells:
        return content
    while cell_width(content) > cells - 1:
        content = content[:-1]
    return content + "…"


def cell_width(content: str) -> int:
    """Cells of a monospaced font: two for wide East Asian characters and emoji, none for combining marks."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in content)


def percent(probability: float) -> str:
    """A probability in percent, at most five characters."""
    value = 100 * probability
    if value < 0.1:
        return "<0.1%"
    return f"{value:.1f}%" if value < 9.95 else f"{value:.0f}%"


def _visible(character: str) -> str:
    if character in "\n\r\t":
        return {"\n": "↵", "\r": "␍", "\t": "⇥"}[character]
    code = ord(character)
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or code & 0xFFFE == 0xFFFE:
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    return character


def _n(value: float) -> str:
    """A coordinate rounded to a tenth of a px, without a trailing zero."""
    return f"{value:.1f}".removesuffix(".0")


def below(drawings: Sequence[str], title: str) -> str:
    """Stacks drawings (SVG texts of this package), left-aligned, into one SVG text."""
    y, width, body = 0.0, 0.0, []
    for drawing in drawings:
        own_width, own_height = size(drawing)
        body.append(_placed(drawing, 0, y, own_width, own_height))
        y, width = y + own_height + GAP, max(width, own_width)
    return document(width, y - GAP, title, body)


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
    return document(width, height, title, body)


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
