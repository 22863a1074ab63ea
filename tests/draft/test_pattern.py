"""Patterns of grammars and of JSON schemas against `re`: what may be written is what both of its readings match."""

import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytest.importorskip("llguidance")
pytest.importorskip("tokenizers")
from support.grammars import BYTES, reads
from support.refusals import refuses

from rescore.decode.draft.structure import Grammar

TEXT = st.text(st.sampled_from('ab"\\ /.-k\n\t\x01\x1fKſKßé²½_0٣\u2028~中'), max_size=4)
ITEM = st.sampled_from(
    [r"\"", r"\\", "a", "k", "é", "~", "/", r"\n", r"\x01", r"\x22", r"\u005c", "a-z", " -~", "!-~", r"\x00-\x1f"]
    + ["0-9", "A-Z", "à-ÿ", r"#-\[", *(rf"\{letter}" for letter in "wWdDsS")]
)
CLASS = st.builds("[{}{}]".format, st.sampled_from(["", "^"]), st.lists(ITEM, min_size=1, max_size=3).map("".join))
ONE = CLASS | st.sampled_from([rf"\{letter}" for letter in "wWdDsS"] + [".", '"', r"\\", "a", "k", "é", "/"])
PATTERN = st.recursive(
    ONE,
    lambda inner: (
        st.builds("{}{}".format, inner, inner)
        | st.builds("(?:{}|{})".format, inner, inner)
        | st.builds("(?{}:{})".format, st.sampled_from(["", "i", "s"]), inner)
        | st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{1,2}"]))
    ),
    max_leaves=4,
)


def matches(pattern, text):
    return all(re.fullmatch(pattern, text, flags) for flags in (0, re.ASCII) if not (flags and "(?u)" in pattern))


def of_schema(pattern):
    return Grammar.json_schema({"type": "string", "pattern": pattern}, BYTES)


def written(text):
    return json.dumps(text, ensure_ascii=False)


def compiled(make, pattern, *texts):
    """What the grammar reads; nothing of a pattern that is refused because no text matches."""
    try:
        return reads(make(pattern), *texts)
    except ValueError:
        assert not any(matches(pattern, text) for text in texts)
        return [False] * len(texts)


@settings(max_examples=100)
@given(PATTERN, st.lists(TEXT, min_size=10, max_size=30))
def test_strings_of_a_schema_obey_its_pattern(pattern, texts):
    for searched in (pattern, f"^{pattern}$"):
        found = compiled(of_schema, searched, *map(written, texts))
        assert all(re.search(searched, text) for text, one in zip(texts, found) if one)


@settings(max_examples=100)
@given(PATTERN, st.lists(TEXT, min_size=10, max_size=30))
def test_texts_match_a_regular_expression(pattern, texts):
    assume("~~" not in pattern)  # `re` warns of it, and so it is read as Rust does: a difference of sets
    found = compiled(lambda one: Grammar.regex(one, BYTES), pattern, *texts)
    assert all(re.fullmatch(pattern, text) for text, one in zip(texts, found) if one)


@pytest.mark.parametrize(
    "pattern",
    [r'^[^"]*$', r"^[^\\]+$", r'^[^"<>]{1,5}$', r'^[^\\/:*?"<>|]+$', "^[^ -~]$", r'^[^\w"]+$', r'[^\D"]', "^[^x]+$"]
    + [r"^[\s\S]$", r"^[ -~]*$", r"^\x22$", r"^\u005c$", r"^.$", r"^(\d|[^\d\"])$", r'^[^"\n]$'],
)
def test_classes_without_the_quote_or_the_backslash(pattern):
    texts = ["", '"', "\\", "a", "x", " ", "~", "5", "é", "\n", 'a"b', "a\\b", "a<b", "ab"]
    wanted = [bool(re.search(pattern.replace("$", r"\Z"), text)) for text in texts]
    assert reads(of_schema(pattern), *map(written, texts)) == wanted


def test_names_of_properties_obey_their_pattern():
    schema = {"patternProperties": {'^[^"]+$': {"type": "integer"}}, "additionalProperties": False}
    assert reads(Grammar.json_schema(schema, BYTES), '{"a": 1}', '{"a\\"": 1}') == [True, False]


def test_schemas_within_a_grammar_obey_their_patterns():
    grammar = 'start: "a" b "%json {"\nb: %json {"type": "string", "pattern": "^[^\\"]*$"}'
    assert reads(Grammar.lark(grammar, BYTES), 'a"b"%json {', 'a"\\""%json {') == [True, False]


def test_words_that_are_no_patterns_are_left_alone():
    """`pattern` as the name of a property, in values and in other keywords."""
    value = {"pattern": "(?=[", "type": "A"}
    schema = {"properties": {"pattern": {"const": value}}, "required": ["pattern"], "additionalProperties": False}
    assert reads(Grammar.json_schema(schema, BYTES), json.dumps({"pattern": value})) == [True]


@pytest.mark.parametrize(
    "pattern",
    [r"(?x) a \s b", r"(?x) a \S b", "(?x) [a-z]+ (\\s [a-z]+)*  # words\n", r"(?x) a [ ] b", r"(?x: a \  ) b", "a\\sb"]
    + [r"(?i)A\wB", "(?i:a) b", "(?s)a.b", "a.b", "(?u)a b", r"(?a)a\wb", "(?P<stop>a) b", r"a {,3}b", "", r"\Aa b\Z"]
    + [r"a(?# a comment \d) b", r"(?x)a\#b", r"a/b|a\nb", "a{b", r"[\d\D]+", r"[^\W\d]+"],
)
def test_flags_and_comments(pattern):
    texts = [
        "",
        "a b",
        "two words",
        "a\nb",
        "axb",
        "A_B",
        "aéb",
        "a#b",
        "a/b",
        "a",
        "b",
        "ab",
        " b",
        "a   b",
        "a{b",
        "[ b",
    ]
    assert reads(Grammar.regex(pattern, BYTES), *texts) == [matches(pattern, text) for text in texts]


def test_syntax_that_only_rust_has():
    letters = ["é", "A", "5", '"']
    found = {
        r"\p{L}": [True, True, False, False],
        r"[^\p{L}\"]": [False, False, True, False],
        r"\x{41}\z": [False, True, False, False],
        "[[:upper:]]": [False, True, False, False],
        r"[\p{L}&&[^\x{41}]]": [True, False, False, False],
        r"(?x)[[:alpha:]&&[^\s]] # \d": [False, True, False, False],
    }
    for pattern, wanted in found.items():
        assert reads(Grammar.regex(pattern, BYTES), *letters) == wanted, pattern
    assert reads(of_schema(r"^\p{L}$"), *map(written, letters)) == [True, True, False, False]
    assert reads(of_schema(r"^[^\p{L}\"]$"), *map(written, letters)) == [False, False, True, False]


@pytest.mark.parametrize(
    "pattern, named",
    [("(?=a)b", "lookaround"), (r"(a)\1", "back-reference"), (r"\ba", r"\b"), ("(?m)^a", "multi-line"), ("(", "(")],
)
def test_refusals(pattern, named):
    refuses(ValueError, lambda: of_schema(pattern), "pattern", named)
    refuses(ValueError, lambda: reads(Grammar.regex(pattern, BYTES)), named)


@pytest.mark.parametrize("made", [lambda pattern: Grammar.regex(pattern, BYTES), of_schema])
def test_brackets_that_can_be_parsed_but_not_written_are_refused(made):
    deep = ("(" * depth + "a" + ")" * depth for depth in range(200, 500, 20))
    refuses(ValueError, lambda: [made(pattern) for pattern in deep], "pattern", "recursion")
