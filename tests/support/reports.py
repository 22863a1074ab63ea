"""A report's Markdown and JSON, read."""

import json

import pytest
from support.paths import ROOT


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The rows of a table of the Markdown by their first cell."""
    lines = text.split(f"**{title}**\n\n")[1].split("\n\n")[0].split("\n")[2:]
    return {
        cells[0].replace("*", ""): cells[1:]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    }


def check_schema(report: dict) -> None:
    """The report is what docs/reference/report.schema.json says, which is a schema and not one that takes anything."""
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "docs/reference/report.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(report)
    for changed in ({"version": 2}, {"verdict": None}, {"more": 1}):
        assert not validator.is_valid({**report, **changed})
