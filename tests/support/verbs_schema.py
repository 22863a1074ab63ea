"""What --json writes, held to docs/reference/verbs.schema.json."""

import json
from functools import cache
from typing import Any

import jsonschema
from support.paths import ROOT

OTHERS = ("rescore-report",)  # which have a schema of their own


@cache
def validators() -> dict[str, jsonschema.Draft202012Validator]:
    """A validator for each format, whose messages are those of its own definition."""
    schema = json.loads((ROOT / "docs/reference/verbs.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return {name: jsonschema.Draft202012Validator(form) for name, form in schema["$defs"].items()}


def check(value: dict[str, Any]) -> None:
    """Raises ValidationError with the position unless the value has the form of its format."""
    if value["format"] not in OTHERS:
        validators()[value["format"]].validate(value)
