"""Schemas as people write them: drafted texts against plain decoding under llguidance's own masks, and `jsonschema`."""

import gzip
import json

import numpy as np
import pytest
import torch
from support import tiny_transformers
from support.paths import ROOT
from support.refusals import refuses

llguidance = pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")
tokenizers = pytest.importorskip("tokenizers")

from rescore import Drafting
from rescore.decode.draft.structure import Grammar

V, END = 49_152, 2
TOKENIZER = tokenizers.Tokenizer.from_file(str(ROOT / "data/demo/tokenizer.json"))
FORMATS = jsonschema.FormatChecker(["date", "uuid", "ipv4"])  # its times have no offset, which RFC 3339 wants
STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def an_object(**properties):
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def nested(depth):
    return an_object(x=nested(depth - 1)) if depth else {"type": "boolean"}


NODE = an_object(v={"type": "integer"}, next={"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]})
HARD = {
    "a recursive reference": {"$defs": {"node": NODE}, "$ref": "#/$defs/node"},
    "objects of which one": {"anyOf": [an_object(a={"type": "integer"}), an_object(b={"type": "boolean"}, a={})]},
    "two thousand values": {"enum": [f'{i} "zwölf" \\ ✓{i % 7}' for i in range(2000)]},
    "patterns of names": {"type": "object", "patternProperties": {"^a[0-9]$": {"type": "integer"}}, "maxProperties": 3},
    "bounds": an_object(
        n={"type": "integer", "minimum": -3, "exclusiveMaximum": 12}, x={"type": "number", "minimum": 0.5, "maximum": 2}
    ),
    "multiples": an_object(n={"type": "integer", "multipleOf": 5}, x={"type": "number", "multipleOf": 0.25}),
    "formats": an_object(
        **{name: {"type": "string", "format": name} for name in ("date", "time", "date-time", "uuid", "ipv4")}
    ),
    "a tuple": {"type": "array", "prefixItems": [{"const": "é"}, {"type": "null"}], "items": False, "minItems": 2},
    "empty objects": an_object(a={"type": "object", "additionalProperties": False}, b={"type": "array", "maxItems": 0}),
    "forty levels": nested(40),
    "lengths": an_object(s={"type": "string", "minLength": 2, "maxLength": 5}, p={"type": "string", "pattern": "^é+$"}),
    "parts of all": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"b": {"enum": [1, "1", None]}}, "required": ["b"]},
        ]
    },
    "several types": an_object(a={"type": ["integer", "null"]}, b={"type": ["boolean", "string"], "maxLength": 3}),
}


class Masks:
    """A logits processor of plain decoding under llguidance, from the tokenizer's file."""

    tokenizer = llguidance.LLTokenizer(TOKENIZER.to_str(), n_vocab=V, eos_token=[END])

    def __init__(self, schema, prompt):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), STYLE)
        self.matcher, self.read = llguidance.LLMatcher(self.tokenizer, grammar), prompt

    def mask(self):
        words = np.zeros((V + 31) // 32, np.uint32)
        self.matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        return np.unpackbits(words.view(np.uint8), count=V, bitorder="little").view(bool)

    def __call__(self, ids, scores):
        assert self.matcher.consume_tokens(ids[0, self.read :].tolist())
        self.read = ids.shape[1]
        return scores.masked_fill(torch.from_numpy(~self.mask()), -torch.inf)


@pytest.fixture(scope="module")
def model():
    """Its texts end strings and objects soon."""
    made = tiny_transformers.generating(V, end=END, pad=0)
    closing = [token for token in range(V) if set(TOKENIZER.decode([token]).strip()) & {*'"}],'}]
    with torch.no_grad():
        made.get_output_embeddings().weight[closing] *= 3
    return made


@pytest.mark.parametrize("name", HARD)
def test_texts_are_those_of_plain_decoding(model, name):
    schema, ended = HARD[name], 0
    for seed in range(2):
        ids = torch.from_numpy(np.random.default_rng(seed).integers(3, V, (1, 5)))
        options = {"input_ids": ids, "max_new_tokens": 160, "do_sample": False}
        drafting = Drafting(structure=Grammar.json_schema(schema, TOKENIZER))
        text = model.generate(**options, custom_generate=drafting)[0, 5:].tolist()
        assert text == model.generate(**options, logits_processor=[Masks(schema, 5)])[0, 5:].tolist()
        if text[-1] == END:
            ended += 1
            jsonschema.validate(json.loads(TOKENIZER.decode(text)), schema, format_checker=FORMATS)
    assert ended


@pytest.mark.parametrize(
    "schema, told",
    [
        (an_object(a={"not": {"type": "null"}}), ["not"]),
        ({"type": "array", "uniqueItems": True}, ["uniqueItems"]),
        ({"type": "array", "contains": {"const": 1}}, ["contains"]),
        ({"if": {"type": "null"}, "then": {"const": 1}}, ["if"]),
        ({"oneOf": [{"minimum": 1}, {"type": "number"}]}, ["oneOf", "anyOf"]),
        ({"type": "object", "propertyNames": {"pattern": "^a"}}, ["propertyNames"]),
        ({"$ref": "https://example.com/schema"}, ["$ref", "$defs"]),
    ],
)
def test_what_cannot_be_kept_is_refused_before_decoding(schema, told):
    refuses(ValueError, lambda: Grammar.json_schema(schema, TOKENIZER).start(V, [END]), "schema", *told)


@pytest.mark.parametrize(
    "schema",
    [
        {"const": -(2**63)},
        {"enum": [1, {"ids": [1245678901234567891]}]},
        {"const": 2**64 - 1},
        {"allOf": [{"type": "integer", "minimum": -1e30}, {"maximum": -1e30}]},
        {"type": "integer", "minimum": 2**53 + 1},
        {"type": "integer", "exclusiveMinimum": 2**53},
        {"type": "integer", "maximum": 2**53 + 3},
        {"type": "integer", "minimum": 2**64},
        {"type": "integer", "exclusiveMinimum": -(10**400), "exclusiveMaximum": 10**400},
    ],
)
def test_numbers_that_llguidance_takes_for_others_are_refused(schema):
    refuses(ValueError, lambda: Grammar.json_schema(an_object(a=schema), TOKENIZER), "schema", "2^63")


@pytest.mark.parametrize(
    "schema, refused",
    [
        ({"exclusiveMinimum": 0, "maximum": 0.5}, True),
        ({"type": ["number", "null"], "exclusiveMaximum": -1, "exclusiveMinimum": -1.25}, True),
        ({"type": "NUMBER", "minimum": -0.5, "exclusiveMaximum": 0.0}, True),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 1}, False),
        ({"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 0.75}, False),
        ({"type": "number", "exclusiveMinimum": 0}, False),
        ({"type": "number", "minimum": 0, "maximum": 0.5}, False),
        ({"type": "number", "exclusiveMinimum": True, "minimum": 0, "maximum": 0.5}, False),  # of drafts before 6
    ],
)
def test_a_whole_number_that_is_excluded_is_not_written(schema, refused):
    if refused:
        refuses(ValueError, lambda: Grammar.json_schema(schema, TOKENIZER), "schema", "exclusiveM")
        return
    state, written = Grammar.json_schema(schema, TOKENIZER).start(V, [END]), str(schema.get("exclusiveMinimum"))
    for token in TOKENIZER.encode(written).ids:
        if not state.allows(token):
            return
        state = state.step(token)
    assert not state.accepting


@pytest.mark.parametrize("number", [2**53, -(2**62), 2**63 - 1, 0.1, 1.5e18, True])
def test_other_numbers_are_written_as_they_are(number):
    state = Grammar.json_schema({"const": number}, TOKENIZER).start(V, [END])
    assert json.loads(TOKENIZER.decode(state.run)) == number


@pytest.mark.parametrize("most", [2**63 - 1, 2**64 - 1, 2**53])
def test_limits_of_machine_integers_are_bounds(most):
    Grammar.json_schema({"type": "integer", "minimum": 0, "maximum": most}, TOKENIZER).start(V, [END])


def test_a_short_grammar_that_overflows_the_stack_is_refused():
    grammar = Grammar.lark('start: %json {"const": -9223372036854775808}', TOKENIZER)
    refuses(ValueError, lambda: grammar.start(V, [END]), "structure", "stack")


@pytest.mark.slow
def test_masks_of_tools_are_llguidances(shared):
    """Along the reference calls of every kind."""
    counts: dict[str, int] = {}
    with gzip.open(shared / "data/tool_calls/test.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            counts[row["kind"]] = counts.get(row["kind"], 0) + 1
            if counts[row["kind"]] > 40:
                continue
            several = row["kind"].startswith("parallel")
            grammar = Grammar.tools(row["tools"], TOKENIZER, several=several)
            state, matcher = grammar.start(V, [END]), llguidance.LLMatcher(Masks.tokenizer, grammar._grammar)
            masks = Masks({}, 0)
            masks.matcher = matcher
            for token in TOKENIZER.encode(json.dumps(row["calls"] if several else row["calls"][0])).ids:
                allowed = masks.mask()
                assert np.array_equal(state.mask(), allowed)
                if not allowed[token]:
                    break  # of a call that its own schema refuses
                state, _ = state.step(token), matcher.consume_token(token)
    assert len(counts) == 6
