"""Tools in the forms of several APIs: OpenAI's two, MCP's, Anthropic's, Gemini's, and Python functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urljoin

from rescore.lattice.extras import needed_for

_DECLARATIONS = ("functionDeclarations", "function_declarations")
_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
_OTHERS = {"name", "description", "strict", "title", "type"}
_NOTHING = {"type": "object", "additionalProperties": False}


def calls(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """A schema for the calls of each tool, {"name": .., "arguments": {..}}. ValueError for forms that are not known.

    A tool's schema is a resource of its own, by its $id, so that its references stay within it.
    """
    if isinstance(tools, (str, Mapping)) or not tools:
        got = f"a {type(tools).__name__}" if tools else "none"
        raise ValueError(f"tools: expected a list of at least one, got {got}")
    functions = [one for place, tool in enumerate(tools) for one in _functions(tool, f"tools[{place}]")]
    found, resources = [], dict[str, tuple[str, Any]]()
    for number, (function, place) in enumerate(functions):
        base = f"https://tools.invalid/{number}/"
        arguments = _arguments(function, place)
        for uri, schema in _resources(arguments, base):
            other, known = resources.setdefault(uri, (place, schema))
            if known != schema:
                raise ValueError(f"{place}: $id {uri!r}: expected one schema of this name, got another in {other}")
        found.append(_call(function["name"], {"$id": base, **arguments}))
    return found


def _functions(tool: Any, place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The functions of one tool, and where each was given."""
    if callable(tool) and not isinstance(tool, type):
        tool = _documented(tool, place)
    if not isinstance(tool, Mapping):
        raise ValueError(f"{place}: expected a dict or a documented function, got {type(tool).__name__}")
    several = next((key for key in _DECLARATIONS if key in tool), None)
    given = [(tool.get("function", tool), place)]
    if several:
        given = [(one, f"{place}.{several}[{number}]") for number, one in enumerate(tool[several])]
    for function, at in given:
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"{at}: expected a function with a name, as in OpenAI's API, got {str(function):.80}")
        yield function, at


def _documented(function: Any, place: str) -> Any:
    """A Python function in OpenAI's form, from its type hints and docstring."""
    with needed_for("a Python function as a tool"):
        from transformers.utils import chat_template_utils as documented
    try:
        return documented.get_json_schema(function)
    except (documented.DocstringParsingException, documented.TypeHintParsingException) as error:
        raise ValueError(f"{place}: expected type hints and a docstring with Args: {error}") from None


def _arguments(function: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The schema of a function's arguments; none of them if it has no schema."""
    given = [key for key in _SCHEMAS if function.get(key) is not None]
    unknown = sorted({*function} - {*_SCHEMAS, *_OTHERS})
    if not given and (unknown or function.get("type", "function") != "function") or len(given) > 1:
        raise ValueError(
            f"{place} {function['name']!r}: expected a function with a schema as one of {', '.join(_SCHEMAS)}, "
            f"got type {function.get('type')!r} with {', '.join(given or unknown) or 'none'}"
        )
    schema = function[given[0]] if given else {}
    if not isinstance(schema, Mapping):
        raise ValueError(f"{place}: {given[0]}: expected a schema as a dict, got {type(schema).__name__}")
    if not schema:
        return _NOTHING
    schema = {"type": "object", **schema}
    if "$ref" in schema:  # beside which older drafts ignore $id
        schema["allOf"] = [*schema.get("allOf", ()), {"$ref": schema.pop("$ref")}]
    if "draft-04" in str(schema.get("$schema")):  # which has no $id
        schema["$schema"] = "http://json-schema.org/draft-06/schema#"
    return schema


def _resources(schema: Any, base: str) -> Iterator[tuple[str, Any]]:
    """The parts of a schema that have an $id of their own."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$id"), str):
            yield urljoin(base, schema["$id"]), schema
        schema = [*schema.values()]
    if isinstance(schema, list):
        for part in schema:
            yield from _resources(part, base)


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
