"""Tools in the forms of several APIs: OpenAI's two, MCP's, Anthropic's, Gemini's, and Python functions."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rescore.lattice.extras import needed_for

_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")
_OTHERS = {"name", "description", "strict", "title", "type"}


def in_openai_form(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Tools as chat templates take them: a function with name, description and parameters each."""
    return [
        {"type": "function", "function": {"description": "", **function, "parameters": _arguments(function, place)}}
        for function, place in _every(tools)
    ]


def _every(tools: Sequence[Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """All functions of tools. ValueError for forms that are not known."""
    if isinstance(tools, (str, Mapping)) or not tools:
        raise ValueError(f"tools: expected a list of at least one, got {type(tools).__name__} {str(tools):.80}")
    for at, tool in enumerate(tools):
        yield from _functions(tool, f"tools[{at}]")


def calls(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """A schema for the calls of each tool, {"name": .., "arguments": {..}}. ValueError for forms that are not known.

    A tool's schema is a resource of its own, by its $id, so that its references stay within it.
    """
    found, known = list[dict[str, Any]](), dict[str, Any]()
    for function, place in _every(tools):
        arguments = {"$id": f"https://tools.invalid/{len(found)}/", **_arguments(function, place)}
        for uri in re.findall(r'"\$id": (".*?")', json.dumps(arguments, default=str)):
            if known.setdefault(uri, arguments) != arguments:
                raise ValueError(f"{place}: $id {uri}: expected a name of this schema, got that of an earlier one")
        properties = {"name": {"const": function["name"]}, "arguments": arguments}
        closed = {"required": [*properties], "additionalProperties": False}
        found.append({"type": "object", "properties": properties, **closed})
    return found


def _functions(tool: Any, place: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """The functions of one tool, and where it was given."""
    tool = _documented(tool, place)
    wrapped = tool if isinstance(tool, Mapping) else {"function": tool}
    several = wrapped.get("functionDeclarations", wrapped.get("function_declarations"))
    for function in several or [wrapped.get("function", tool)]:
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"{place}: expected a function with a name, as in OpenAI's API, got {str(function):.80}")
        yield function, f"{place} {function['name']!r}"


def _documented(tool: Any, place: str) -> Any:
    """A Python function in OpenAI's form, from its type hints and docstring, or a pydantic model; other tools as they
    are.
    """
    if hasattr(tool, "model_json_schema"):
        facts = {
            "name": tool.__name__,
            "description": inspect.getdoc(tool) or "",
            "parameters": tool.model_json_schema(),
        }
        return {"type": "function", "function": facts}
    if not callable(tool) or isinstance(tool, type):
        return tool
    with needed_for("a Python function as a tool"):
        from transformers.utils import chat_template_utils as templates
    try:
        return templates.get_json_schema(tool)
    except (templates.DocstringParsingException, templates.TypeHintParsingException) as error:
        raise ValueError(f"{place}: expected type hints and a docstring with Args: {error}") from None


def _arguments(function: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The schema of a function's arguments; none of them if it has no schema."""
    given = [key for key in _SCHEMAS if function.get(key) is not None]
    foreign = {*function} - {*_SCHEMAS, *_OTHERS} or function.get("type", "function") != "function"
    if len(given) > 1 or not given and foreign or given and not isinstance(function[given[0]], Mapping):
        raise ValueError(f"{place}: expected a schema as one of {', '.join(_SCHEMAS)}, got {str(function):.200}")
    if not given or not function[given[0]]:
        return {"type": "object", "additionalProperties": False}
    schema = {"type": "object", **function[given[0]]}
    if "$ref" in schema:  # beside which older drafts ignore $id
        schema["allOf"] = [*schema.get("allOf", ()), {"$ref": schema.pop("$ref")}]
    if "draft-04" in str(schema.get("$schema")):  # which has no $id
        schema["$schema"] = "http://json-schema.org/draft-06/schema#"
    return schema
