"""Wraps what is too long in Markdown pages: paragraphs and items of lists in which a line has more than 120 columns.

    python tools/docs/wrap.py PAGE.md ..

Tables, code, headings and words that are longer themselves stay as they are; a span of code stays on one line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

WIDTH = 120
WORD = re.compile(r"(?:`[^`]*`|[^\s`]|`)+")
ITEM = re.compile(r"\s*(?:[-*]|\d+\.) ")
BLOCK = re.compile(r"[-*+>#|] ?|\d+\. ?")  # what begins something else at the start of a line
FIXED = re.compile(r"\s{4}|\s*[|#<>!]|>>>")


def kinds(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Each line with the number of its paragraph or item; 0 for lines that stay as they are."""
    fenced, paragraph, last = False, 0, ""
    for line in lines:
        fence = line.lstrip().startswith("```")
        if fence or fenced or not line.strip() or (FIXED.match(line) and not (last and line.startswith("    "))):
            last, number = "", 0
        else:
            if not last or ITEM.match(line):
                paragraph += 1
            last, number = line, paragraph
        fenced ^= fence
        yield number, line


def wrapped(text: str) -> Iterator[str]:
    """Lines of one paragraph or item."""
    item = ITEM.match(text)
    margin = " " * (len(item[0]) if item else len(text) - len(text.lstrip()))
    line = item[0].rstrip() if item else ""
    for word in WORD.findall(text[len(item[0]) :] if item else text):
        longer = f"{line} {word}" if line.strip() else margin + word
        if len(longer) > WIDTH and line.strip() and not BLOCK.fullmatch(word):
            yield line
            longer = margin + word
        line = longer
    yield line


def too_long(line: str) -> bool:
    """Whether a line could be broken."""
    return len(line) > WIDTH and len([*wrapped(line)]) > 1


def wrap(text: str) -> str:
    out: list[str] = []
    for number, group in groupby(kinds(text.split("\n")), key=lambda pair: pair[0]):
        lines = [line for _, line in group]
        if number and any(map(too_long, lines)):
            first, *rest = lines
            lines = [*wrapped(" ".join([first, *(line.strip() for line in rest)]))]
        out += lines
    return "\n".join(out)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        if (new := wrap(old := page.read_text(encoding="utf-8"))) != old:
            page.write_text(new, encoding="utf-8")
