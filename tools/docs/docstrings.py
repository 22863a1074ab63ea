"""Docstrings of the API's pages: aligned lists become tables, and an object begins with its import."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Object

import rescore

_HOME: dict[str, str] = vars(rescore)["_HOME"]  # by name, the module that has it
NAMES = r"[a-z_]\w*(?:, [a-z_]\w*)*"


def tabled(docstring: str) -> str:
    """The docstring with a table in place of each paragraph that lists names and what they are:

    name   what it is, in a column of its own,
           on as many lines as it takes
    """
    return "\n\n".join(_table(part) or part for part in docstring.split("\n\n"))


def listed(paragraph: str) -> list[tuple[str, str]]:
    """The names of a list and what they are; empty if the paragraph is none."""
    columns = {len(found[0]) for line in paragraph.split("\n") if (found := re.match(rf"{NAMES}  +(?=\S)", line))}
    rows: list[tuple[str, str]] = []
    for line in paragraph.split("\n"):
        if line.startswith("  ") and rows:
            rows[-1] = rows[-1][0], f"{rows[-1][1]} {line.strip()}"
        elif found := next(_cut(line, columns), None):
            rows.append(found)
        else:
            return []
    return rows


def _cut(line: str, columns: set[int]) -> Iterator[tuple[str, str]]:
    """The name and the text of a line whose text begins at one of the columns."""
    for column in columns:
        if re.fullmatch(rf"{NAMES} +", line[:column]) and line[column:].strip():
            yield line[:column].strip(), line[column:]


def _table(paragraph: str) -> str | None:
    rows = listed(paragraph)
    cells = (f"| {', '.join(f'`{one}`' for one in names.split(', '))} | {_cell(text)} |" for names, text in rows)
    return "\n".join(("| name | meaning |", "|---|---|", *cells)) if rows else None


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[")


def imported(path: str) -> str:
    """The line that imports a public object."""
    home, name = path.removeprefix("rescore.").rsplit(".", 1)
    return f"from rescore import {name}" if _HOME.get(name) == home else f"from rescore.{home} import {name}"


class Docstrings(Extension):
    """Applied to every object that a page shows."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = tabled(obj.docstring.value)
            if obj.parent and obj.parent.is_module and not obj.is_module:
                obj.docstring.value = f"```python\n{imported(obj.path)}\n```\n\n{obj.docstring.value}"
