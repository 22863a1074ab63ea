"""Regular expressions for llguidance: read by Python's own parser, written in Rust's syntax without flags or names.

What is written obeys the pattern under both readings of \\d, \\w and \\s, the ASCII one of JSON schemas and the Unicode
one of `re`: such a class holds what is in both, its complement what is in neither.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

_PARSER = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_ASCII = {"DIGIT": "0-9", "WORD": "0-9A-Za-z_", "SPACE": r"\t\n\x0b\x0c\r\x20"}
_UNICODE = {"DIGIT": r"\p{Nd}", "WORD": r"\w\p{L}\p{N}", "SPACE": r"\s\x1c-\x1f\x{feff}"}
_ENDS = {"AT_BEGINNING": "^", "AT_BEGINNING_STRING": "^", "AT_END": "$", "AT_END_STRING": "$"}
_NAMES = {
    "ASSERT": "a lookaround",
    "ASSERT_NOT": "a negative lookaround",
    "AT": "^, $ or \\b within a line",
    "ATOMIC_GROUP": "an atomic group",
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a condition on a group",
    "POSSESSIVE_REPEAT": "a possessive repetition",
}
# \p{..}, \x{..}, \u{..}, \z and (?<name>..), which `re` lacks; POSIX classes; other escapes, to be stepped over.
_FOREIGN = re.compile(
    r"\\[pP](?:\{[^{}]*\}|[A-Z])|\\[xu]\{(?P<code>[0-9A-Fa-f]{1,6})\}|\\(?P<end>z)|\\.|\(\?(?P<group><)(?=\w)"
    r"|(?P<posix>\[:\^?[a-z]+:\])",
    re.S,
)
_PRIVATE = 0x100000  # characters that stand for classes which only Rust has


def rewritten(pattern: str, *, quoted: bool = False) -> str:
    """The pattern for llguidance. ValueError for what no automaton reads.

    quoted: within a string of JSON, where it is read as `re` and JSON schemas do; otherwise class operations of Rust's
    syntax (`[a-z&&[^b]]`, `[[:alpha:]]`), which `re` warns of or does not know, are read as Rust does
    """
    writer = _Writer(quoted)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if quoted else "error")
            parsed = _PARSER.parse(_FOREIGN.sub(writer.known, pattern))
    except (re.error, Warning, OverflowError, RecursionError, ValueError) as error:
        if quoted or isinstance(error, RecursionError):
            raise ValueError(f"pattern: expected a regular expression, got {pattern[:80]!r}: {error}") from None
        return re.sub(r"\\([dwsDWS\\])", _as_ascii, pattern)
    return writer.sequence(parsed, parsed.state.flags) or "(?:)"


def _as_ascii(escape: re.Match[str]) -> str:
    name = {"d": "DIGIT", "w": "WORD", "s": "SPACE"}.get(escape[1].lower())
    return escape[0] if name is None else f"[{'^' if escape[1].isupper() else ''}{_ASCII[name]}]"


class _Writer:
    def __init__(self, quoted: bool):
        self.quoted, self.classes = quoted, list[str]()

    def known(self, found: re.Match[str]) -> str:
        """What `re` reads in place of Rust's or ECMAScript's syntax."""
        if found["code"]:
            return re.escape(chr(int(found["code"], 16)))
        if found["end"] or found["group"]:
            return r"\Z" if found["end"] else "(?P<"
        if found[0][:2] not in (r"\p", r"\P") and (self.quoted or not found["posix"]):
            return found[0]
        self.classes.append(f"[{found[0]}]" if found["posix"] else found[0])
        return chr(_PRIVATE + len(self.classes) - 1)

    def sequence(self, parsed: Any, flags: int) -> str:
        return "".join(self.node(str(op), value, flags) for op, value in parsed)

    def node(self, op: str, value: Any, flags: int) -> str:
        if op in ("LITERAL", "NOT_LITERAL"):
            return self.one_of([(op, value)], flags)
        if op == "IN":
            return self.one_of([(str(kind), item) for kind, item in value], flags)
        if op == "ANY":
            return "(?s:.)" if flags & re.S else "."
        if op == "BRANCH":
            return f"(?:{'|'.join(self.sequence(branch, flags) for branch in value[1])})"
        if op == "SUBPATTERN":
            _, added, removed, inner = value
            return f"(?:{self.sequence(inner, (flags | added) & ~removed)})"
        if op in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = value
            bound = "" if most == _PARSER.MAXREPEAT else most
            return f"(?:{self.sequence(inner, flags)}){{{least},{bound}}}"
        if op == "AT" and str(value) in _ENDS and not flags & re.M:
            return _ENDS[str(value)]
        raise ValueError(f"pattern: expected no {_NAMES.get(op, op.lower())}, which an automaton cannot follow")

    def one_of(self, items: list[tuple[str, Any]], flags: int) -> str:
        """A class of characters, or one of them."""
        if items == [("LITERAL", items[0][1] or None)]:
            text = self.char(items[0][1])
        else:
            readings = [self.reading(items, table) for table in _tables(items, flags)]
            text = f"[{'&&'.join(readings)}]" if len(readings) > 1 else readings[0]
            if self.quoted:  # llguidance quotes a set with all control characters as if it held quote and backslash
                text = f"[{text}--\\x00]"
        return f"(?i{'-u' if flags & re.A else ''}:{text})" if flags & re.I else text

    def reading(self, items: list[tuple[str, Any]], categories: Mapping[str, str]) -> str:
        parts = "".join(self.item(kind, value, categories) for kind, value in items)
        return f"[^{parts}]" if _negated(items) else f"[{parts}]"

    def item(self, kind: str, value: Any, categories: Mapping[str, str]) -> str:
        if kind == "NEGATE":
            return ""
        if kind == "RANGE":
            return f"{self.char(value[0])}-{self.char(value[1])}"
        if kind != "CATEGORY":
            return self.char(value)
        name = str(value).removeprefix("CATEGORY_")
        inside = categories[name.removeprefix("NOT_")]
        return f"[^{inside}]" if name.startswith("NOT_") else inside

    def char(self, code: int) -> str:
        if 0 <= code - _PRIVATE < len(self.classes):
            return self.classes[code - _PRIVATE]
        return chr(code) if code < 128 and chr(code).isalnum() else f"\\x{{{code:x}}}"


def _negated(items: list[tuple[str, Any]]) -> bool:
    return items[0][0] in ("NEGATE", "NOT_LITERAL")


def _tables(items: list[tuple[str, Any]], flags: int) -> list[Mapping[str, str]]:
    """The readings of a class whose intersection is meant; one where that is the smaller one by itself."""
    kinds = [str(value).startswith("CATEGORY_NOT") for kind, value in items if kind == "CATEGORY"]
    outside = {kind != _negated(items) for kind in kinds}
    if flags & re.A or True not in outside:
        return [_ASCII]
    return [_UNICODE] if False not in outside else [_ASCII, _UNICODE]
