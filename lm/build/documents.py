"""Reads the documents of text files."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lm.build.inputs import Piece
from rescore.lm.build.parquet import parquet_texts
from rescore.lm.build.vocabulary import BadText, Skipped
from rescore.lm.model.compressed import MAX_BYTES, Damaged, lines_before, lines_of, open_text
from rescore.lm.model.tokenizer import Chat, ChatFormat


@dataclass(slots=True)
class Faults:
    """Handles the bad documents of a piece: counts them in `skipped`, or raises ValueError if that is None."""

    piece: Piece
    skipped: Skipped | None
    before: int | None = None  # lines of the file before the piece, counted on first use

    def add(self, number: int, fault: BadText) -> None:
        """number: the line in the piece, from 1; the row in a Parquet file; 0 for a whole file."""
        if self.skipped is None:
            raise ValueError(f"{self.where(number)}: {fault}") from None
        self.skipped.add(self.where(number), fault)

    def where(self, number: int) -> str:
        """The file and its line or row, for messages."""
        if self.piece.form == "txt":
            return self.piece.name
        return f"{self.piece.name}, {'row' if self.piece.form == 'parquet' else 'line'} {self.in_file(number)}"

    def in_file(self, number: int) -> int:
        """The line or row in the whole file, from 1; 1 for a whole file."""
        if self.piece.form == "txt":
            return 1
        if self.piece.form == "parquet":
            return number
        if self.before is None:
            self.before = lines_before(self.piece.path, self.piece.begin) if self.piece.begin else 0
        return self.before + number


def documents(piece: Piece, faults: Faults, chats: ChatFormat | None = None) -> Iterator[tuple[int, str]]:
    """Yields the documents of a piece with their numbers (see `Faults.add`); with `chats`, JSON lines may be chats.

    ValueError names file and line if compressed data or a Parquet file are damaged.
    """
    found = _rows(piece) if piece.form == "parquet" else _lines(piece, faults)
    for number, raw in found:
        try:
            text = _text_of(raw, piece, chats)
        except BadText as fault:
            faults.add(number, fault)
            continue
        if text:
            yield number, text


def _rows(piece: Piece) -> Iterator[tuple[int, bytes | None]]:
    assert piece.field is not None
    yield from parquet_texts(Path(piece.path), piece.field, piece.begin, piece.end)


def _lines(piece: Piece, faults: Faults) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    try:
        with open_text(piece.path) as stream:
            if piece.form == "txt":
                yield 0, _whole(piece.name, stream.read(MAX_BYTES + 1))
                return
            for number, line in enumerate(lines_of(stream, piece.begin, piece.end), 1):
                yield number, line
    except Damaged as error:
        raise ValueError(f"{error} (after line {number})") from None


def _whole(name: str, content: bytes) -> bytes:
    if len(content) > MAX_BYTES:
        raise ValueError(
            f"{name}: expected one document of at most {MAX_BYTES >> 20} MiB, got more; "
            "use --documents line if each line is a document, else split the file"
        )
    return content


def _text_of(raw: bytes | None, piece: Piece, chats: ChatFormat | None) -> str:
    """The text of a line, row or file; BadText if it has none."""
    if piece.form == "parquet" and raw is None:
        raise BadText("no text", f"expected text in column {piece.field!r}, got null")
    if raw is None or len(raw) > MAX_BYTES:
        raise BadText("too long", f"longer than {MAX_BYTES >> 20} MiB")
    if 3 * raw.count(0) > len(raw) + 1:  # as in lines that PowerShell's >> adds
        raise BadText("not UTF-8", "expected UTF-8, got a third NUL characters, as in UTF-16")
    text = decode_utf8(raw)
    if piece.form == "lines":
        return text.rstrip("\r\n")
    return text if piece.field is None or piece.form == "parquet" else json_text(text, piece.field, chats)


def decode_utf8(text: bytes) -> str:
    """Decodes UTF-8, without a byte-order mark at its beginning. BadText if it is not UTF-8."""
    try:
        return text.removeprefix(BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadText("not UTF-8", f"expected UTF-8, got byte 0x{text[error.start]:02x} at {error.start}") from None


def json_text(line: str, field: str, chats: ChatFormat | None = None) -> str:
    """The text of a line of JSON, or with `chats` of its messages; empty for a blank line. BadText if it has none."""
    if not line.strip():
        return ""
    try:
        row = json.loads(line)
    except RecursionError:
        raise BadText("not JSON", "nested too deeply for a document") from None
    except ValueError as error:
        raise BadText("not JSON", f"expected a JSON object, got {line.strip()[:60]}: {error}") from None
    text = row.get(field) if isinstance(row, dict) else None
    if text is None and isinstance(row, dict) and "messages" in row:
        text = _rendered(row["messages"], chats)
    if not isinstance(text, str):
        remedy = "; --text-field names another key" if isinstance(row, dict) else "; each line is one object"
        raise BadText("no text", f'expected an object with a string "{field}", got {line.strip()[:60]}{remedy}')
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadText(
            "half a surrogate pair", f'"{field}" holds half a surrogate pair, which is not a character'
        ) from None
    return text


def _rendered(messages: Any, chats: ChatFormat | None) -> Chat:
    """A chat as text. BadText if it is none, or the model's template refuses it."""
    if chats is None:
        raise BadText("no chat template", "expected text, got messages: give --model with a chat model")
    if not isinstance(messages, list) or not all(isinstance(one, dict) and "role" in one for one in messages):
        raise BadText("no chat", f'expected "messages" of role and content, got {str(messages)[:60]}')
    try:
        return Chat(chats.render(messages))
    except ValueError as error:
        raise BadText("no chat", str(error)) from None


def refuse_end_of_text(ids: NDArray[np.uint32], end_of_text: int) -> None:
    """Raises BadText if the tokens of a document contain the end of text."""
    if (ids == end_of_text).any():
        raise BadText(
            "holds the end of text", f"its tokens contain the end of text, {end_of_text}, which would split it"
        )
