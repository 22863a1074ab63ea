"""Calls of tools against jsonschema, in the forms of several APIs and with references of every kind."""

import json

import jsonschema
import pytest

pytest.importorskip("llguidance")
pytest.importorskip("tokenizers")
from support.grammars import BYTES, reads
from support.refusals import refuses

from rescore.decode.draft.structure import Grammar

CLOSED = {"type": "object", "additionalProperties": False}
INTEGER = {**CLOSED, "properties": {"x": {"type": "integer"}}, "required": ["x"]}
PLACE = {**CLOSED, "properties": {"city": {"type": "string"}}, "required": ["city"]}


def one(**properties):
    return {**CLOSED, "properties": properties}


REFERENCES = {
    "$defs": {**one(a={"$ref": "#/$defs/Place"}), "$defs": {"Place": PLACE}},
    "definitions": {**one(a={"$ref": "#/definitions/Place"}), "definitions": {"Place": PLACE}},
    "recursion": one(a={"$ref": "#"}),
    "property": one(a=PLACE, b={"$ref": "#/properties/a"}),
    "anchor": {**one(a={"$ref": "#place"}), "$defs": {"Place": {"$anchor": "place", **PLACE}}},
    "relative": {**one(a={"$ref": "place.json"}), "$defs": {"Place": {"$id": "place.json", **PLACE}}},
    "own": {
        "$id": "https://a.example/t.json",
        **one(a={"$ref": "https://a.example/t.json#/$defs/P"}),
        "$defs": {"P": PLACE},
    },
    "root": {"$ref": "#/$defs/Tool", "$defs": {"Tool": one(a={"$ref": "#/$defs/Tool"})}},
    "draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/Tool",
        "definitions": {"Tool": one(a={"$ref": "#/definitions/Tool"})},
    },
    "draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **one(a={"$ref": "#/definitions/Place"}),
        "definitions": {"Place": PLACE},
    },
}
VALUES = [{}, {"a": {}}, {"a": {"city": "b"}}, {"a": {"city": 1}}, {"a": {"a": {}}}, {"b": {"city": "b"}}, {"a": 1}]


def call(arguments, name="add"):
    return json.dumps({"name": name, "arguments": arguments})


def called(tool, *arguments):
    return reads(Grammar.tools([tool], BYTES), *map(call, arguments))


@pytest.mark.parametrize("schema", REFERENCES.values(), ids=REFERENCES.keys())
def test_references_stay_within_the_tool(schema):
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    wanted = [validator.is_valid(value) for value in VALUES]
    assert True in wanted and False in wanted
    other = {"name": "other", "parameters": {**one(a={"$ref": "#/$defs/Place"}), "$defs": {"Place": INTEGER}}}
    tool = {"type": "function", "function": {"name": "add", "parameters": schema}}
    assert called(tool, *VALUES) == wanted
    assert reads(Grammar.tools([other, tool], BYTES), *map(call, VALUES)) == wanted
    lists = [f"[{call(value)}]" for value in VALUES]
    assert reads(Grammar.tools([tool, other], BYTES, several=True), *lists) == wanted


def test_equal_names_of_several_tools_do_not_collide():
    schemas = {
        name: {**one(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": kind}}}
        for name, kind in {"f": "string", "g": "integer"}.items()
    }
    grammar = Grammar.tools([{"name": name, "parameters": schema} for name, schema in schemas.items()], BYTES)
    for name, schema in schemas.items():
        for value in ({"a": "b"}, {"a": 1}):
            wanted = jsonschema.Draft202012Validator(schema).is_valid(value)
            assert reads(grammar, call(value, name)) == [wanted]


def add(x: int):
    """Adds.

    Args:
        x: a number
    """


def undocumented(x):
    pass


GEMINI = {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}, "required": ["x"]}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "add", "parameters": INTEGER, "strict": True}},
        {"type": "function", "name": "add", "description": "Adds.", "parameters": INTEGER, "strict": True},
        {"name": "add", "inputSchema": INTEGER, "annotations": {"readOnlyHint": True}},
        {"name": "add", "input_schema": INTEGER, "cache_control": {"type": "ephemeral"}},
        {"functionDeclarations": [{"name": "none"}, {"name": "add", "parameters": GEMINI}]},
        {"function_declarations": [{"name": "add", "parametersJsonSchema": INTEGER}]},
        {"name": "add", "parameters": {key: part for key, part in INTEGER.items() if key != "type"}},
        add,
    ],
)
def test_forms_of_several_apis(tool):
    if callable(tool):
        pytest.importorskip("transformers")
    values = [{"x": 1}, {}, {"x": "1"}, "x", None]
    assert called(tool, *values) == [jsonschema.Draft202012Validator(INTEGER).is_valid(value) for value in values]


def test_a_tool_without_a_schema_takes_no_arguments():
    for tool in ({"name": "add"}, {"name": "add", "parameters": None}, {"name": "add", "parameters": {}}):
        assert called(tool, {}, {"x": 1}) == [True, False]


EXTERNAL = {"properties": {"x": {"$ref": "https://b.example/x.json"}}}


@pytest.mark.parametrize(
    "tools, named",
    [
        ([{"name": "add", "args_schema": INTEGER}], ["tools[0]", "add", "args_schema"]),
        ([{"type": "web_search", "name": "find"}], ["tools[0]", "web_search"]),
        ([{"toolSpec": {"name": "add"}}], ["tools[0]", "toolSpec"]),
        ([{"name": "add", "parameters": INTEGER, "inputSchema": INTEGER}], ["parameters", "inputSchema"]),
        ([{"name": "add", "parameters": "x: int"}], ["tools[0]", "x: int"]),
        ([{"name": "a"}, {"functionDeclarations": [{"parameters": {}}]}], ["tools[1]", "parameters"]),
        ([int], ["tools[0]", "int"]),
        ([undocumented], ["tools[0]", "undocumented"]),
        ({"name": "add"}, ["tools", "dict"]),
        ([{"name": "add", "parameters": EXTERNAL}], ["$ref", "https://b.example/x.json"]),
        ([{"name": "add", "parameters": {"$ref": "#/$defs/Tool"}}], ["$ref", "/$defs/Tool"]),
        (
            [
                {"name": name, "parameters": {"$id": "urn:x:t", **schema}}
                for name, schema in (("f", PLACE), ("g", INTEGER))
            ],
            ["tools[1]", "urn:x:t"],
        ),
    ],
)
def test_refusals(tools, named):
    refuses(ValueError, lambda: reads(Grammar.tools(tools, BYTES)), *named)
