"""Reads ARPA files. log10 is used only here, and in `arpa_write.py`.

The words of a file are text, numbered in the order of the unigrams, or token ids: decimal, or each a character, as in
models for NeMo and sherpa.
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

from rescore.lm.model.compressed import PACKINGS, STDIN, Damaged, open_text
from rescore.lm.model.formats import ArpaOptions
from rescore.lm.model.gram_rows import BadRow, tables_of_rows
from rescore.lm.model.grams import MAX_ORDER, MAX_VOCABULARY
from rescore.lm.model.ngram import BOS, CAPITALS, EOS, UNK, NGram
from rescore.lm.model.tables import NEVER

LN10 = float(np.log(10.0))
MAX_LOG10 = 1e6
IMPOSSIBLE_LOG10 = -1e5  # -inf is read as this, as costs are finite; it is 0 as a probability
# Ends of names of files that are read as ARPA.
SUFFIXES = (".arpa", ".lm", *(f"{name}{packing}" for name in (".arpa", ".lm", "") for packing in PACKINGS))
MAX_LINE_BYTES = 1 << 20
MOST_TIMES = 200  # that compressed data may expand
_CAPITALS, _UNK = CAPITALS.encode(), UNK.encode()
_BACKOFF = {False: "and a finite backoff", True: "and no backoff in the highest order"}
UNKNOWN_LOG10 = -100.0  # of <unk> if the file has none, as in KenLM
NEVER_COST = 98.9 * LN10  # costs from here on mean ARPA's -99, "never"
SPARSE_IDS = 1 << 16
FIRST_CHARACTER = 100  # of token 0, as NeMo and sherpa write it


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
    name = "standard input" if os.fspath(path) == STDIN else os.fspath(path)
    lines = _Lines(name)
    try:
        with open_text(path, MOST_TIMES) as lines.text:
            return _read_sections(lines)
    except Damaged as error:
        raise ValueError(f"{error} (after line {lines.number})") from None


def _read_sections(lines: _Lines) -> list[ArpaSection]:
    counts = _read_header(lines)
    sections: list[ArpaSection] = []
    for order, count in enumerate(counts, 1):
        sections.append(ArpaSection(order))
        following = _read_section(lines, sections, count, last=order == len(counts))
        expected = b"\\end\\" if order == len(counts) else b"\\%d-grams:" % (order + 1)
        if following != expected:
            raise lines.error(f"expected {expected.decode()} after {count} {order}-grams", following or b"")
    if (more := lines.next_text()) is not None:  # as KenLM; compressed data are checked at their end
        raise lines.error("expected nothing after \\end\\", more)
    return sections


@dataclass(slots=True)
class _Lines:
    """The lines of a file, stripped of white space and numbered from 1."""

    name: str
    text: BinaryIO = field(init=False)
    number: int = 0

    def next(self) -> bytes | None:
        """The next line, None at the end."""
        line = self.text.readline(MAX_LINE_BYTES + 1)
        if not line:
            return None
        self.number += 1
        if len(line) > MAX_LINE_BYTES:
            raise self.error(f"expected lines of at most {MAX_LINE_BYTES} bytes")
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


def read_arpa(path: str | os.PathLike[str], options: ArpaOptions | None = None) -> NGram:
    """Reads a model from an ARPA file. ValueError names the file and, where possible, the line.

    Without `end_of_text`, <s> is a context and never an event, whatever its own probability; <unk> (or <UNK>) is an
    ordinary word of a file of text, added (log10 -100) if a model over sentences lacks it. An n-gram whose suffix is
    missing is read as KenLM reads it. A probability of -inf becomes log10 -100,000.
    """
    options = options or ArpaOptions()
    sections = read_sections(path)
    try:
        words = [word.decode() for word in sections[0].words]
        if options.words == "chars":
            words = [word if word in (BOS, EOS, UNK) else _id_of(word) for word in words]
        as_ids = options.words == "chars" or _are_ids(words, options)
        return _ids_model(sections, words, options) if as_ids else _text_model(sections, words, options)
    except BadRow as error:
        lines = sections[error.order - 1].line
        where = f":{lines[error.row]}" if error.row < len(lines) else ""
        raise ValueError(f"{os.fspath(path)}{where}: this {error.order}-gram {error.why}") from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _id_of(word: str) -> str:
    if len(word) != 1 or ord(word) < FIRST_CHARACTER:
        raise ValueError(f"expected characters from {chr(FIRST_CHARACTER)!r}, of token 0, on, got {word!r:.60}")
    return str(ord(word) - FIRST_CHARACTER)


def _are_ids(words: list[str], options: ArpaOptions) -> bool:
    ordinary = [word for word in words if word not in (BOS, EOS, UNK)]
    text = next((word for word in ordinary if not re.fullmatch("0|[1-9][0-9]{0,7}", word)), None)
    if options.words == "ids" and (text is not None or not ordinary):
        raise ValueError(f"expected decimal token ids as words, got {text!r}; words='text' reads any words")
    return options.words == "ids" or (options.words == "auto" and text is None and bool(ordinary))


def _text_model(sections: list[ArpaSection], words: list[str], options: ArpaOptions) -> NGram:
    """The model of a file of text: ids in order of the unigrams, <unk> last if it was added.

    If </s> is a placeholder, the model is over fragments: placeholders among <s>, </s> and <unk> are dropped. They are
    dropped as well if `end_of_text` gives the id that ends sentences.
    """
    rows, cost, backoff = _values(sections)
    holders = _place_holders(words, rows, cost[0], backoff[0])
    joined, fragments = options.end_of_text is not None and EOS in words and EOS not in holders, EOS in holders
    if joined:
        words, rows = _join_boundaries(words, rows, cost, backoff, holders, options)
    elif fragments:
        keep = np.array([word not in holders for word in words])
        number_of = np.cumsum(keep) - 1
        rows = [number_of[own].astype(np.uint32) for own in [rows[0][keep], *rows[1:]]]
        cost[0], backoff[0] = cost[0][keep], backoff[0][keep]
        words = [word for word in words if word not in holders]
    number = {word: i for i, word in enumerate(words)}
    if UNK not in number and not fragments and not joined:
        rows[0] = np.append(rows[0], np.array([[len(words)]], np.uint32), axis=0)
        cost[0], backoff[0] = np.append(cost[0], -UNKNOWN_LOG10 * LN10), np.append(backoff[0], 0.0)
        words = [*words, UNK]
    if options.vocab_size not in (None, len(words)):
        raise ValueError(f"expected a vocabulary of {options.vocab_size} words, got {len(words)}")
    if options.end_of_text is not None and options.end_of_text >= len(words):
        raise ValueError(f"end_of_text: expected an id in 0..{len(words) - 1}, got {options.end_of_text}")
    bos, eos = (None, None) if joined else (number.get(BOS), number.get(EOS))
    if bos is not None:
        cost[0][bos] = NEVER
    tables = tables_of_rows(rows, cost, backoff[:-1], vocab_size=len(words), bos=bos, eos=eos)
    marks = {} if joined or fragments or {BOS, EOS} <= number.keys() else {"lacks_sentence_marks": True}
    return NGram.from_tables(tables, words=words, metadata={**_ended(options), **marks})


def _join_boundaries(
    words: list[str],
    rows: list[NDArray[np.uint32]],
    cost: list[NDArray[np.float64]],
    backoff: list[NDArray[np.float64]],
    holders: set[str],
    options: ArpaOptions,
) -> tuple[list[str], list[NDArray[np.uint32]]]:
    """The words, with </s> moved to the end-of-text id, and the n-grams over the new ids, with <s> as the same id.

    Reorders the costs and backoffs of unigrams in place.
    """
    assert options.end_of_text is not None
    kept = [i for i, word in enumerate(words) if word not in {BOS, EOS, *holders}]
    if options.end_of_text > len(kept):
        raise ValueError(f"end_of_text: expected an id in 0..{len(kept)}, got {options.end_of_text}")
    end = words.index(EOS)
    order = [*kept[: options.end_of_text], end, *kept[options.end_of_text :]]
    number_of = np.full(len(words), -1)
    number_of[order] = np.arange(len(order))
    cost[0], unigram_backoff = cost[0][order], backoff[0][order]
    unigram_backoff[options.end_of_text] = 0.0
    if BOS in words:
        begin = words.index(BOS)
        number_of[begin], unigram_backoff[options.end_of_text] = options.end_of_text, backoff[0][begin]
    backoff[0] = unigram_backoff
    unigrams = np.arange(len(order), dtype=np.uint32)[:, None]
    return [words[i] for i in order], [unigrams, *(number_of[own].astype(np.uint32) for own in rows[1:])]


def _ended(options: ArpaOptions) -> dict[str, int]:
    """The end-of-text id as metadata."""
    return {} if options.end_of_text is None else {"end_of_text": options.end_of_text}


def _place_holders(
    words: list[str], rows: list[NDArray[np.uint32]], cost: NDArray[np.float64], backoff: NDArray[np.float64]
) -> set[str]:
    """The words of <s>, </s> and <unk> that have probability "never", no backoff, and no longer n-gram."""
    number = {word: i for i, word in enumerate(words) if word in (BOS, EOS, UNK)}
    return {
        word
        for word, i in number.items()
        if cost[i] >= NEVER_COST and backoff[i] == 0 and not any((own == i).any() for own in rows[1:])
    }


def _ids_model(sections: list[ArpaSection], words: list[str], options: ArpaOptions) -> NGram:
    """The model of a file of ids. <s> and </s> become the end-of-text id; missing ids share the mass of <unk>."""
    rows, cost, backoff = _values(sections)
    special = {word: i for i, word in enumerate(words) if word in (BOS, EOS, UNK)}
    ids = _token_ids(words, special, _place_holders(words, rows, cost[0], backoff[0]), options)
    vocab_size = _vocabulary(ids, options)
    unigram_cost, unigram_backoff = np.full(vocab_size, np.nan), np.zeros(vocab_size)
    event, context = ids >= 0, ids >= 0
    event[special.get(BOS, 0)] &= BOS not in special
    context[special.get(EOS, 0)] &= EOS not in special
    unigram_cost[ids[event]] = cost[0][event]
    unigram_backoff[ids[context]] = backoff[0][context]
    missing = np.isnan(unigram_cost)
    unknown = cost[0][special[UNK]] if UNK in special else -UNKNOWN_LOG10 * LN10
    unigram_cost[missing] = unknown + np.log(max(int(missing.sum()), 1))
    for order, own in enumerate(rows[1:], 2):
        outside = (ids[own] < 0).any(axis=1)
        if outside.any():
            raise BadRow(order, int(outside.argmax()), [], "has <s>, </s> or <unk>, which stand for no token id")
        rows[order - 1] = ids[own].astype(np.uint32)
    rows[0] = np.arange(vocab_size, dtype=np.uint32).reshape(-1, 1)
    tables = tables_of_rows(
        rows, [unigram_cost, *cost[1:]], [unigram_backoff, *backoff[1:]][: len(rows) - 1], vocab_size=vocab_size
    )
    return NGram.from_tables(tables, metadata=_ended(options))


def _vocabulary(ids: NDArray[np.int64], options: ArpaOptions) -> int:
    """V of a file of ids. A small file with one very large id is an error unless vocab_size is given."""
    largest = max(int(ids.max()), options.end_of_text or 0)
    limit = options.vocab_size or MAX_VOCABULARY
    if largest >= limit:
        raise ValueError(f"expected token ids below {limit}, got {largest}")
    if options.vocab_size is None and largest > SPARSE_IDS + 16 * len(ids):
        raise ValueError(f"token id {largest} among {len(ids)} unigrams: give vocab_size if that is meant")
    return options.vocab_size or largest + 1


def _token_ids(words: list[str], special: dict[str, int], holders: set[str], options: ArpaOptions) -> NDArray[np.int64]:
    """The id of each word, int64 [words]; -1 for <unk>, and for <s> and </s> if they are placeholders."""
    ids = np.array([-1 if word in special else int(word) for word in words], np.int64)
    used = [word for word in (BOS, EOS) if word in special and word not in holders]
    if used and options.end_of_text is None:
        raise ValueError(
            f"{' and '.join(used)} in a file of token ids: give end_of_text, the end-of-text id that they stand for"
        )
    if used and (ids == options.end_of_text).any():
        raise ValueError(f"token id {options.end_of_text}, the end of text, has its own unigram beside <s> and </s>")
    for word in used:
        assert options.end_of_text is not None
        ids[special[word]] = options.end_of_text
    return ids


def _values(
    sections: list[ArpaSection],
) -> tuple[list[NDArray[np.uint32]], list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Rows, costs and backoff costs of every order."""
    rows = [section.rows() for section in sections]
    cost = [np.array(section.logp, np.float64) * -LN10 + 0.0 for section in sections]
    backoff = [np.array(section.backoff, np.float64) * -LN10 + 0.0 for section in sections]
    return rows, cost, backoff
