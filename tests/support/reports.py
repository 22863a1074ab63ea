"""Readers of a report's Markdown and JSON."""

import json

from support.paths import ROOT


def rows(text: str, title: str) -> dict[str, list[str]]:
    """The rows of a Markdown table by their first cell."""
    lines = text.split(f"**{title}**\n\n")[1].split("\n\n")[0].split("\n")[2:]
    return {
        cells[0].replace("*", ""): cells[1:]
        for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    }


def check_schema(report: dict) -> None:
    """Checks the report against docs/reference/report.schema.json, and that this schema is valid and strict."""
    import jsonschema

    schema = json.loads((ROOT / "docs/reference/report.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(report)
    for changed in ({"version": 1}, {"verdict": None}, {"more": 1}):
        assert not validator.is_valid({**report, **changed})
