"""One document of JSON lines."""

from __future__ import annotations

import json
from codecs import BOM_UTF8


class NoDocument(ValueError):
    """A row that holds no document. `reason` is one of few, to count by; the message says what was found."""

    def __init__(self, reason: str, message: str):
        super().__init__(message)
        self.reason = reason


def decoded(text: bytes) -> str:
    """UTF-8, without a byte-order mark at its beginning."""
    try:
        return text.removeprefix(BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise NoDocument("not UTF-8", f"expected UTF-8, got byte 0x{text[error.start]:02x} at {error.start}") from None


def text_of(line: str, field: str = "text") -> str:
    """The string under `field` of a line's object."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise NoDocument("not JSON", "nested too deeply for a document") from None
    except ValueError as error:
        raise NoDocument("not JSON", str(error)) from None
    if not isinstance(row, dict) or not isinstance(row.get(field), str):
        raise NoDocument(f'no string "{field}"', f'expected an object with a string "{field}", got {line.strip()[:60]}')
    if any("\ud800" <= c <= "\udfff" for c in row[field]):
        raise NoDocument("half a surrogate pair", f'"{field}" holds half a surrogate pair, which is no character')
    return row[field]


def is_blank(line: bytes) -> bool:
    """Whether a line is neither a document nor a mistake."""
    return line.strip() in (b"", BOM_UTF8)
