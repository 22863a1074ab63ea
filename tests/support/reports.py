"""Readers of a report's Markdown, and of JSON as the schemas of docs/reference describe it."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from support.paths import ROOT


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The rows of a Markdown table by their first cell."""
    lines = text.split(f"**{title}**\n\n")[1].split("\n\n")[0].split("\n")[2:]
    return {
        cells[0].replace("*", ""): cells[1:]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    }


def schema_of(name: str) -> dict[str, Any]:
    """A schema, which is valid."""
    schema = json.loads((ROOT / f"docs/reference/{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return schema


def check_schema(report: dict) -> None:
    """Checks the report against its schema, and that this is strict."""
    validator = Draft202012Validator(schema_of("report"))
    validator.validate(report)
    for changed in ({"version": 1}, {"verdict": None}, {"more": 1}):
        assert not validator.is_valid({**report, **changed})


@cache
def validators() -> dict[str, Draft202012Validator]:
    """A validator for each format of --json, whose messages are those of its own definition."""
    return {name: Draft202012Validator(form) for name, form in schema_of("verbs")["$defs"].items()}


def check_figures(value: dict[str, Any]) -> None:
    """Raises ValidationError with the position unless the value, but for reports, has the form of its format."""
    if value["format"] != "rescore-report":
        validators()[value["format"]].validate(value)
