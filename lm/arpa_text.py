"""Parses the text of ARPA files, plain or compressed, into sections of numbers; `arpa.py` makes models of them.

The file is not trusted: lines, counts and decompressed data are bounded, and memory use follows the text read, not the
header's claims.
"""

from __future__ import annotations

import math
import os
import re
from array import array
from codecs import BOM_UTF8
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from rescore.lm.grams import MAX_ORDER, MAX_VOCABULARY
from rescore.lm.inputs import DAMAGE, STDIN, packing_of, standard_input, unpacked

LN10 = float(np.log(10.0))
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
CAPITALS = "<UNK>"  # means <unk>, as in KenLM; all other spellings are ordinary words
MAX_LOG10 = 1e6
IMPOSSIBLE_LOG10 = -1e5  # -inf is read as this, as costs are finite; it is 0 as a probability
MAX_LINE_BYTES = 1 << 20
BOMB_BYTES, BOMB_RATIO = 64 << 20, 200  # compressed data that exceed both limits are refused


@dataclass(slots=True)
class ArpaSection:
    """The n-grams of one order in file order. Words are numbered in the order of the unigrams.

    token   [rows * order] uint32; logp and backoff [rows] float64 in log10; line [rows] in the file
    words   the number of each word; filled in the section of order 1 only
    """

    order: int
    token: array[int] = field(default_factory=lambda: array("I"))
    logp: array[float] = field(default_factory=lambda: array("d"))
    backoff: array[float] = field(default_factory=lambda: array("d"))
    line: array[int] = field(default_factory=lambda: array("Q"))
    words: dict[bytes, int] = field(default_factory=dict)

    def rows(self) -> NDArray[np.uint32]:
        """The numbers of the words, uint32 [rows, order]."""
        return np.array(self.token, np.uint32).reshape(-1, self.order)


def read_sections(path: str | os.PathLike[str]) -> list[ArpaSection]:
    """The sections of orders 1..N of a file (`-`: standard input). ValueError names file and line."""
    piped = os.fspath(path) == STDIN
    name = "standard input" if piped else os.fspath(path)
    with standard_input() if piped else open(path, "rb") as file:
        packing = packing_of(file.peek(6))
        if packing and piped:
            raise ValueError(f"{name}: expected plain text, got {packing}; unpack it, as in `zcat FILE |`")
        lines = _Lines(name, file, packing)
        counts = _read_header(lines)
        sections: list[ArpaSection] = []
        for order, count in enumerate(counts, 1):
            sections.append(ArpaSection(order))
            following = _read_section(lines, sections, count, last=order == len(counts))
            expected = b"\\end\\" if order == len(counts) else b"\\%d-grams:" % (order + 1)
            if following != expected:
                raise lines.error(f"expected {expected.decode()} after {count} {order}-grams", following or b"")
        while packing and lines.next() is not None:  # read to the end, where checksums are checked
            pass
    return sections


class _Lines:
    """The lines of a file, stripped of white space and numbered from 1."""

    def __init__(self, name: str, file: BinaryIO, packing: str | None) -> None:
        self.name, self.number, self._read, self._file = name, 0, 0, file
        self._text = unpacked(file, packing) if packing else file
        self._packing = packing

    def next(self) -> bytes | None:
        """The next line, None at the end."""
        try:
            line = self._text.readline(MAX_LINE_BYTES + 1)
        except (*DAMAGE, OSError) as error:
            raise ValueError(f"{self.name}:{self.number + 1}: the {self._packing} data are damaged: {error}") from error
        if not line:
            return None
        self.number += 1
        if len(line) > MAX_LINE_BYTES:
            raise self.error(f"expected lines of at most {MAX_LINE_BYTES} bytes")
        self._read += len(line)
        if self._packing and self._read > BOMB_BYTES and self._read > BOMB_RATIO * self._file.tell():
            raise self.error(
                f"expected {self._packing} data that expand at most {BOMB_RATIO} times, got more; if the file is "
                "right, unpack it"
            )
        return line.strip()

    def next_text(self) -> bytes | None:
        """The next line that is not blank."""
        while (line := self.next()) == b"":
            pass
        return line

    def error(self, message: str, line: bytes | None = None) -> ValueError:
        got = "" if line is None else f", got {line[:60].decode('utf-8', 'replace')!r}"
        return ValueError(f"{self.name}:{self.number}: {message}{got}")


def _read_header(lines: _Lines) -> list[int]:
    """The numbers of n-grams after \\data\\; also consumes the line \\1-grams:."""
    begin = (lines.next_text() or b"").removeprefix(BOM_UTF8)
    while begin.startswith(b"#"):  # a comment, as KenLM skips it
        begin = lines.next_text() or b""
    if begin != b"\\data\\":
        raise lines.error("expected an ARPA file, which begins with \\data\\", begin)
    counts: list[int] = []
    while (line := lines.next_text()) is not None and line.startswith(b"ngram"):
        found = re.fullmatch(rb"ngram\s+(\d{1,3})\s*=\s*(\d{1,18})", line)
        if not found or int(found[1]) != len(counts) + 1:
            raise lines.error(f"expected 'ngram {len(counts) + 1}=' and a number", line)
        counts.append(int(found[2]))
    if not 1 <= len(counts) <= MAX_ORDER:
        raise lines.error(f"expected the numbers of 1 to {MAX_ORDER} orders, got {len(counts)}")
    if line != b"\\1-grams:":
        raise lines.error("expected \\1-grams:", line or b"")
    return counts


def _read_section(lines: _Lines, sections: list[ArpaSection], count: int, *, last: bool) -> bytes | None:
    """Fills the last of the sections and returns the line after it."""
    section, words = sections[-1], sections[0].words
    order = section.order
    while (line := lines.next_text()) is not None and not line.startswith(b"\\"):
        fields = line.split()
        if _CAPITALS in line:
            fields = [_UNK if field == _CAPITALS else field for field in fields]
        if len(fields) not in (order + 1, order + 2):
            raise lines.error(
                f"expected a log10 probability, {order} word{'s'[: order - 1]} and optionally a backoff", line
            )
        if len(section.logp) == count:
            raise lines.error(f"expected {count} {order}-grams from the header, got more")
        try:
            logp, backoff = float(fields[0]), float(fields[-1]) if len(fields) == order + 2 else 0.0
        except ValueError:
            raise lines.error("expected numbers around the words", line) from None
        if logp == -math.inf:
            logp = IMPOSSIBLE_LOG10
        if not (-MAX_LOG10 <= logp <= 0.0 and abs(backoff) <= MAX_LOG10) or (last and backoff):
            raise lines.error(
                f"expected a log10 probability from {-MAX_LOG10:.0f} to 0, or -inf, {_BACKOFF[last]}", line
            )
        if order == 1:
            _add_word(lines, words, fields[1])
        try:
            section.token.extend([words[word] for word in fields[1 : order + 1]])
        except KeyError as error:
            raise lines.error("expected words that have unigrams", error.args[0]) from None
        section.logp.append(logp)
        section.backoff.append(backoff)
        section.line.append(lines.number)
    if len(section.logp) != count:
        raise lines.error(f"expected {count} {order}-grams from the header, got {len(section.logp)}")
    return line


_CAPITALS, _UNK = CAPITALS.encode(), UNK.encode()
_BACKOFF = {False: "and a finite backoff", True: "and no backoff in the highest order"}


def _add_word(lines: _Lines, words: dict[bytes, int], word: bytes) -> None:
    if word in words:
        raise lines.error(
            "expected each word once, <UNK> being <unk>" if word == _UNK else "expected each word once", word
        )
    try:
        word.decode()
    except UnicodeDecodeError as error:
        raise lines.error(f"expected words in UTF-8, got byte 0x{word[error.start]:02x}", word) from None
    if len(words) == MAX_VOCABULARY:
        raise lines.error(f"expected at most {MAX_VOCABULARY} words")
    words[word] = len(words)
