"""Structures of JSON schemas, tools, regular expressions and grammars, read by llguidance (the extra `structure`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.grammar_tokenizer import fast_tokenizer, guided, mark_ids, spelling_of
from rescore.decode.draft.grammar_trial import fails
from rescore.decode.draft.pattern import rewritten
from rescore.decode.draft.tools import calls
from rescore.lattice.extras import needed_for
from rescore.lattice.marks import After
from rescore.lattice.spelling import Spelling
from rescore.lattice.structure import Matcher, State, end_bits

LARGEST = 1 << 20  # characters of a schema or grammar
SHORT = 1000  # characters of a grammar that can do no harm, without long numbers
LONG = re.compile(r"\d{16}|\d[eE]\+?\d\d")  # numbers, of which some overflow llguidance's stack: -9223372036854775808
WORD = re.compile(r"[^\W_]\S*")
COPIED_TOKENS = 512  # of a prompt, its last ones
COPIED_CHARACTERS = 40  # of what begins with a word
DATA = {"const", "default", "enum", "example", "examples"}  # keywords whose values are not schemas
UPPER, LOWER = {"exclusiveMaximum", "maximum"}, {"exclusiveMinimum", "minimum"}
NAMED = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}  # schemas by name
INLINE = re.compile(r'("pattern":\s*)("(?:[^"\\]|\\.)*")')  # of a schema in a Lark grammar, `%json {..}`
READ: dict[str, Callable[[str], str]] = {"pattern": partial(rewritten, quoted=True), "type": str.lower}
REFUSALS = {
    r"Unimplemented keys: \[(.*)\]": "expected keywords that bound text as it is written, got {}; leave them out",
    "oneOf constraints": "oneOf: expected alternatives that differ in type or in a constant, got others; write anyOf",
    "Pointer '(.*?)' does not exist": "$ref: expected a part of the schema, got #{}, which it lacks; add it",
    "Resource '(.*?)' is not present": "$ref: expected a part of the schema, got {}; copy that into its $defs",
}
TIGHT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
FREE = {"whitespace_flexible": True}
Mark = str | Sequence[int]
EXACT, MIN, MAX = 1 << 53, -(1 << 63), (1 << 63) - 1
WRAPPER = {"description", "name", "schema", "strict", "type"}


class Grammar:
    """A structure read by llguidance: a JSON schema, tools, a regular expression or a Lark grammar.

    tokenizer: a fast one of Hugging Face (`transformers` or `tokenizers`), a tokenizer.json, or a folder with one.
    ValueError, when a text starts, if the grammar is not understood, or takes more than 10 seconds or 1 GB to compile;
    later, where its states become too many. copies: whether values of its texts, which are JSON, are drafted from words
    of the prompt. names_tokens: whether the grammar may name end tokens, which then end a text; None: if it is Lark's.
    """

    def __init__(self, grammar: str, tokenizer: Any, *, copies: bool = False, names_tokens: bool | None = None):
        self._grammar, self._tokenizer, self._copied = grammar, fast_tokenizer(tokenizer), copies
        can = "<" in grammar and not grammar.startswith("{")  # Lark's syntax alone can
        self._names_tokens = can if names_tokens is None else names_tokens

    @classmethod
    def json_schema(cls, schema: Any, tokenizer: Any, *, whitespace: bool = False) -> Grammar:
        """JSON that a schema (a dict, its text, or a pydantic model) describes.

        whitespace: any between tokens; by default what `json.dumps` writes, ", " and ": " alone
        """
        text, style = _json_text(schema), FREE if whitespace else TIGHT
        return cls(_llguidance().LLMatcher.grammar_from_json_schema(text, style), tokenizer, copies=True)

    @classmethod
    def tools(
        cls,
        tools: Sequence[Any],
        tokenizer: Any,
        *,
        several: bool = False,
        whitespace: bool = False,
        between: tuple[Mark, Mark] | None = None,
        required: bool = False,
    ) -> Grammar | After:
        """A call of one of these tools, {"name": .., "arguments": {..}}; `several`: a list of calls.

        Tools are given in the form of OpenAI, MCP, Anthropic or Gemini, as pydantic models, or as Python functions,
        which transformers reads for its chat templates.

        between: two marks; free text with any number of calls, each between these, and nothing else but white space in
            front, and up to two characters of it behind
        required: at least one call, of those between marks
        """
        alternatives = calls(tools)
        call = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        schema = {"type": "array", "items": call, "minItems": 1} if several else call
        if between is None:
            return cls.json_schema(schema, tokenizer, whitespace=whitespace)
        fast, (first, last) = fast_tokenizer(tokenizer), between
        last = mark_ids(last, fast)
        end = json.dumps(last) if isinstance(last, str) else " ".join(f"<[{token}]>" for token in last)
        styled = {"x-guidance": FREE if whitespace else TIGHT, **json.loads(_json_text(schema))}
        lark = f"start: call /[ \\t\\r\\n]{{0,2}}/ {end}\ncall: %json {json.dumps(styled)}"
        grammar = cls(_llguidance().LLMatcher.grammar_from_lark(lark), fast, copies=True, names_tokens=False)
        until = last if isinstance(last, str) else ""
        return After(grammar, first, spelling_of(fast), required=required, until=until)

    def after(self, mark: Mark, *, exact: bool = False, required: bool = False) -> After:
        """Free text until a mark, text or token ids, then this structure.

        exact: whether no white space may stand between them; required: whether the text may not end without the mark
        """
        return After(self, mark, spelling_of(self._tokenizer), exact=exact, required=required)

    @classmethod
    def regex(cls, pattern: str, tokenizer: Any) -> Grammar:
        """Texts that match a regular expression as a whole, as read by `re`, or else by Rust. Its \\d, \\w and \\s are
        ASCII, and \\D, \\W and \\S leave out what is Unicode's.
        """
        return cls(_llguidance().LLMatcher.grammar_from_regex(rewritten(_within(pattern, "pattern"))), tokenizer)

    @classmethod
    def lark(cls, grammar: str, tokenizer: Any) -> Grammar:
        """Texts of a context-free grammar in Lark's syntax, as llguidance reads it; its start rule is `start`."""
        text = _within(grammar, "grammar")
        readable = INLINE.sub(lambda one: one[1] + json.dumps(rewritten(json.loads(one[2]), quoted=True)), text)
        return cls(_llguidance().LLMatcher.grammar_from_lark(readable), tokenizer)

    def start(self, vocab_size: int, ends: Collection[int]) -> State:
        harmless = len(self._grammar) <= SHORT and not LONG.search(self._grammar)
        if not harmless and (how := fails(self._grammar)):
            raise ValueError(f"structure: expected a grammar of bounded complexity, got one that {how}")
        tokenizer, ends = guided(self._tokenizer, vocab_size), frozenset(ends)
        matcher = _llguidance().LLMatcher(tokenizer, self._grammar, log_level=0)
        named = ends if self._names_tokens else frozenset[int]()
        copies = (partial(_copies, tokenizer),) if self._copied else ()
        return State(_Guided(matcher, tokenizer, named), vocab_size, ends, *copies)


class _Guided(Matcher):
    """A state of llguidance's matcher, which copies in microseconds.

    named  the end tokens if the grammar may spell one out, which then ends the text; else none
    """

    accepting = False

    def __init__(self, matcher: Any, tokenizer: Any, named: frozenset[int]):
        if matcher.is_error():
            raise ValueError(_refusal(_error_of(matcher)))
        self._matcher, self._tokenizer, self._named = matcher, tokenizer, named
        self.accepting = bool(matcher.is_accepting()) or any(map(self._ended_by, named))

    def _ended_by(self, end: int) -> bool:
        matcher = self._matcher.deep_copy()
        return bool(matcher.consume_token(end) and matcher.is_accepting())

    def run(self) -> Sequence[int]:
        if self.accepting or self._matcher.is_stopped():
            return ()
        run: list[int] = self._matcher.compute_ff_tokens()
        return run[: next((at for at, token in enumerate(run) if token in self._named), len(run))]

    def write(self, words: NDArray[np.uint32]) -> None:
        if self._matcher.is_stopped():
            return
        every = np.empty((self._tokenizer.vocab_size + 31) // 32, np.uint32)
        self._matcher.unsafe_compute_mask_ptr(every.ctypes.data, every.nbytes)
        words[:] = every[: len(words)]
        if self._named:
            words &= end_bits(self._named, 32 * len(words))[1]
        if self._matcher.is_error() or not (self.accepting or words.any()):
            raise ValueError(
                "structure: expected a grammar within llguidance's bounds under which some token may follow, got: "
                f"{_error_of(self._matcher) or self._matcher.stop_reason()}"
            )

    def after(self, *tokens: int) -> _Guided:
        matcher = self._matcher.deep_copy()
        matcher.consume_tokens(tokens)
        return _Guided(matcher, self._tokenizer, self._named)

    @property
    def complete(self) -> bool:
        return self.accepting and bool(self._matcher.is_stopped())

    def begun(self, text: bytes, spelling: Spelling) -> _Guided | None:
        ids, matcher = self._tokenizer.tokenize_bytes(text), self._matcher.deep_copy()
        if matcher.try_consume_tokens(ids) < len(ids):
            return None
        return _Guided(matcher, self._tokenizer, self._named)


def _copies(tokenizer: Any, prompt: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """The words of the prompt's end, each with what follows, as JSON values begin with them.

    A word's first token has a space in a prompt and none in a string, so that the prompt itself does not tell it.
    """
    text = tokenizer.decode_str(prompt[-COPIED_TOKENS:].tolist())
    values = (text[word.start() : word.start() + COPIED_CHARACTERS] for word in WORD.finditer(text))
    begun = ((": " if value[0].isdigit() else ': "') + value for value in values)
    return [np.array(tokenizer.tokenize_str(one), np.int32) for one in begun]


def _error_of(matcher: Any) -> str:
    """The matcher's error, without its state and backtrace."""
    text: str = matcher.get_error().partition("\n<")[0].strip()
    return text if len(text) <= 400 else text[:200] + " .. " + text[-200:]


def _refusal(error: str) -> str:
    """An error of llguidance about a grammar, with its remedy."""
    for pattern, refusal in REFUSALS.items():
        if found := re.search(pattern, error):
            return f"schema: {refusal.format(*found.groups())}"
    return f"structure: expected a grammar that llguidance reads within its bounds, got: {error}"


def _json_text(schema: Any) -> str:
    """A schema as llguidance reads it."""
    if hasattr(schema, "model_json_schema"):
        schema = schema.model_json_schema()
    try:
        text = _within(schema if isinstance(schema, str) else json.dumps(schema), "schema")
        return json.dumps(_readable(_unwrapped(json.loads(text))))
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"schema: expected a JSON schema: {error}") from None


def _unwrapped(schema: Any) -> Any:
    """The schema of what OpenAI's `response_format` wraps around it; {} where any JSON is allowed."""
    if not isinstance(schema, dict | bool) or schema is False:
        raise ValueError(f"expected an object, got {json.dumps(schema):.80}")
    inner = {} if schema is True else schema.get("json_schema", schema)
    return inner["schema"] if "schema" in inner and {*inner} <= WRAPPER else inner


def _readable(schema: Any, key: str = "") -> Any:
    """Patterns rewritten and types in lower case (Gemini's are not), wherever they are keywords. ValueError for numbers
    that llguidance would take for others.
    """
    if isinstance(schema, list):
        return [_readable(part, key) for part in schema]
    if not isinstance(schema, dict):
        read = READ.get(key) if isinstance(schema, str) else None
        return read(schema) if read else schema
    if key == "patternProperties":
        schema = {rewritten(name, quoted=True): part for name, part in schema.items()}
    if key in NAMED:
        return {name: _readable(part) for name, part in schema.items()}
    for name in schema.keys() & ({"const", "enum"} | UPPER | LOWER):
        _check_numbers(schema[name], name)
    _check_interval(schema)
    return {name: part if name in DATA else _readable(part, name) for name, part in schema.items()}


def _check_numbers(value: Any, name: str) -> None:
    """ValueError if llguidance, which keeps whole numbers as floats and then in 64 bits, would write others than those
    of a value, or beyond a bound.
    """
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_numbers(part, name)
    if type(value) is int:  # the greatest that it writes is MAX
        most = EXACT if name.startswith("exclusive") else MAX  # one is added to a float
        kept = -most <= value < most and int(float(value)) == value or value == MAX or name in UPPER and value > MAX
    else:
        kept = type(value) is not float or name not in UPPER | LOWER or value > MIN
    if not kept:
        raise ValueError(
            f"{name}: expected whole numbers that a float of 64 bits holds, below 2^63 in magnitude, got {value}; "
            "describe them as strings"
        )


def _check_interval(schema: dict[str, Any]) -> None:
    """ValueError for numbers between an excluded whole one and a bound less than 1 away: llguidance writes that too."""
    if "number" not in str(schema.get("type", "number")).lower():
        return
    for name, others, sign in (("exclusiveMinimum", UPPER, 1), ("exclusiveMaximum", LOWER, -1)):
        own, bounds = schema.get(name), [schema[one] for one in others if type(schema.get(one)) in (int, float)]
        if not isinstance(own, int | float) or own is True or own is False or not -EXACT < own < EXACT:
            continue
        if own == int(own) and any(sign * one < sign * own + 1 for one in bounds):
            raise ValueError(
                f"{name}: expected a number that is not whole where another bound is less than 1 away, got {own}; "
                f"give {name.removeprefix('exclusive').lower()}, a number little {'above' if sign > 0 else 'below'} it"
            )


def _within(text: str, name: str) -> str:
    if len(text) > LARGEST:
        raise ValueError(f"{name}: expected at most {LARGEST:,} characters, got {len(text):,}")
    return text


def _llguidance() -> Any:
    with needed_for("a structure of JSON, regular expressions or grammars"):
        import llguidance
    return llguidance
