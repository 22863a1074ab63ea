"""Regular expressions for llguidance: read by Python's own parser, written in Rust's syntax without flags or names.

What is written obeys the pattern under both readings of \\d, \\w and \\s, the ASCII one of JSON schemas and the Unicode
one of `re`: a class holds what is in both.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

_PARSER = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_ASCII = {"D": "0-9", "W": "0-9A-Za-z_", "S": r"\t\n\x0b\x0c\r\x20"}
_UNICODE = {"D": r"\p{Nd}", "W": r"\w\p{L}\p{N}", "S": r"\s\x1c-\x1f\x{feff}"}
_FOREIGN = re.compile(r"(\\[^pP])|\\[pP](?:\{[^{}]*\}|[A-Z])|\(\?<(?=\w)", re.S)  # to `re`; or an escape
_PRIVATE, _QUOTED = 0x100000, 1 << 30  # characters that stand for properties; a flag beside those of `re`


def rewritten(pattern: str, *, quoted: bool = False) -> str:
    """The pattern for llguidance. ValueError for what no automaton reads.

    quoted: within a string of JSON; otherwise what `re` does not know or warns of (`\\p{L}`, `[[:alpha:]&&[^a]]`) is
    read as Rust does
    """
    names = {"(?<": "(?P<"}
    known = _FOREIGN.sub(lambda one: one[1] or names.setdefault(one[0], chr(_PRIVATE + len(names))), pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if quoted else "error")
            parsed = _PARSER.parse(known if quoted else pattern)
    except (re.error, Warning, OverflowError, RecursionError) as error:
        if quoted or isinstance(error, RecursionError):
            raise ValueError(f"pattern: expected a regular expression, got {pattern[:80]!r}: {error}") from None
        classes = {f"\\{name}": f"[^{inside}]" for name, inside in _ASCII.items()}
        classes |= {f"\\{name.lower()}": f"[{inside}]" for name, inside in _ASCII.items()}
        return re.sub(r"\\.", lambda escape: classes.get(escape[0], escape[0]), pattern, flags=re.S)
    try:
        text = _sequence(parsed, parsed.state.flags | _QUOTED * quoted) or "(?:)"
    except RecursionError as error:
        raise ValueError(f"pattern: expected a regular expression, got {pattern[:80]!r}: {error}") from None
    for name, character in [*names.items()][1:]:
        text = text.replace(_char(ord(character)), name)
    return text


def _sequence(parsed: Any, flags: int) -> str:
    return "".join(_node(str(op), value, flags) for op, value in parsed)


def _node(op: str, value: Any, flags: int) -> str:
    if op in ("LITERAL", "NOT_LITERAL", "IN"):
        items = value if op == "IN" else [("NEGATE", None), ("LITERAL", value)][op == "LITERAL" :]
        text = _one_of([(str(kind), item) for kind, item in items], flags)
        return f"(?i{'-u' * bool(flags & re.A)}:{text})" if flags & re.I else text
    if op == "ANY":
        return "(?s:.)" if flags & re.S else "."
    if op == "BRANCH":
        return f"(?:{'|'.join(_sequence(branch, flags) for branch in value[1])})"
    if op == "SUBPATTERN":
        return f"(?:{_sequence(value[3], (flags | value[1]) & ~value[2])})"
    if op in ("MAX_REPEAT", "MIN_REPEAT"):
        bound = "" if value[1] == _PARSER.MAXREPEAT else value[1]
        return f"(?:{_sequence(value[2], flags)}){{{value[0]},{bound}}}"
    if op == "AT" and "BOUNDARY" not in str(value) and not flags & re.M:
        return "^" if "BEGINNING" in str(value) else "$"
    raise ValueError(f"pattern: expected no lookaround, back-reference, \\b, possessive or multi-line part: {op}")


def _one_of(items: list[tuple[str, Any]], flags: int) -> str:
    """A class of characters, or one of them."""
    if len(items) == 1 and items[0][0] == "LITERAL" and items[0][1]:
        return _char(items[0][1])
    tables = [_ASCII] if flags & re.A or all(kind != "CATEGORY" for kind, _ in items) else [_ASCII, _UNICODE]
    text = "&&".join(f"[{''.join(_item(*one, table) for one in items)}]" for table in tables)
    # llguidance quotes a set with all control characters as if it held the quote and the backslash.
    return f"[[{text}]--\\x00]" if flags & _QUOTED else f"[{text}]"


def _item(kind: str, value: Any, categories: Mapping[str, str]) -> str:
    if kind in ("NEGATE", "LITERAL"):
        return "^" if value is None else _char(value)
    if kind == "RANGE":
        return f"{_char(value[0])}-{_char(value[1])}"
    *_, negated, name = str(value).split("_")  # CATEGORY_NOT_WORD
    return f"[{'^' * (negated == 'NOT')}{categories[name[0]]}]"


def _char(code: int) -> str:
    return chr(code) if code < 128 and chr(code).isalnum() else f"\\x{{{code:x}}}"
