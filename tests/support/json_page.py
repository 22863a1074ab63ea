"""The JSON formats in docs/reference/json.md, and a check of values against them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

OTHERS = ("rescore-report",)  # which have a schema of their own
PAGE = Path(__file__).parents[2] / "docs/reference/json.md"
STEP = re.compile(r"\.?([a-z0-9_]+)(\?)?|\[\]|\{\}")
NAMES = {str: "str", bool: "bool", int: "int", float: "float", type(None): "null"}


@dataclass
class Form:
    """The form of a value: types of a leaf, form of a list's items, form of a mapping's values, and fields."""

    types: set[str] = field(default_factory=set)
    items: Form | None = None
    values: Form | None = None
    fields: dict[str, Form] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)

    def at(self, path: str) -> Form:
        here = self
        for match in STEP.finditer(path):
            if match[0] == "[]":
                here.items = here.items or Form()
                here = here.items
            elif match[0] == "{}":
                here.values = here.values or Form()
                here = here.values
            else:
                if match[2]:
                    here.optional.add(match[1])
                here = here.fields.setdefault(match[1], Form())
        return here


@cache
def forms() -> dict[str, Form]:
    """The forms by format, from the blocks below headings that name a format."""
    found: dict[str, Form] = {}
    for name, block in re.findall(r"^### `(rescore-[a-z-]+)`.*?\n```text\n(.*?)```", PAGE.read_text(), re.S | re.M):
        found[name] = Form()
        for line in block.splitlines():
            path, types = line.split(": ", 1)
            found[name].at(path).types |= set(types.split(" or "))
    return found


def check(value: dict[str, Any]) -> None:
    """AssertionError with the position unless the value has the form of its format."""
    if value["format"] in OTHERS:
        return
    assert value["version"] == 2 and value["format"] in forms(), (
        f"docs/reference/json.md does not list {value['format']}"
    )
    _check(value, forms()[value["format"]], value["format"])


def _check(value: Any, form: Form, place: str) -> None:
    if "any" in form.types:
        return
    if isinstance(value, dict):
        assert form.fields or form.values, (
            f"{place}: docs/reference/json.md lists {form.types or 'a list'}, got an object"
        )
        for name, own in value.items():
            inner = form.fields.get(name) or form.values
            assert inner is not None, f"{place}.{name}: not in docs/reference/json.md"
            _check(own, inner, f"{place}.{name}")
        missing = set(form.fields) - form.optional - set(value)
        assert not missing or (form.values and not value), (
            f"{place}: docs/reference/json.md lists {sorted(missing)}, not there"
        )
    elif isinstance(value, list):
        assert form.items is not None, f"{place}: docs/reference/json.md lists no list"
        for number, own in enumerate(value):
            _check(own, form.items, f"{place}[{number}]")
    else:
        name = NAMES[type(value)]
        assert name in form.types or (name == "int" and "float" in form.types), (
            f"{place}: docs/reference/json.md lists {' or '.join(sorted(form.types)) or 'no value'}, got {name}"
        )
