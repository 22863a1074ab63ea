"""Writes ARPA files, with words as text or decimal token ids, with or without sentence ends."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import output_to
from rescore.lm.model.arpa import FIRST_CHARACTER, LN10
from rescore.lm.model.ngram import BOS, CAPITALS, EOS, UNK, NGram
from rescore.lm.model.tables import Tables

CHUNK = 1 << 16
MOST_CHARACTERS = 0xD800 - FIRST_CHARACTER  # those before surrogates, which UTF-8 has not


def write_arpa(
    model: NGram,
    path: str | os.PathLike[str],
    *,
    words: Literal["text", "ids", "chars"] | None = None,
    sentence_ends: bool | None = None,
) -> None:
    """Writes an ARPA file (gzipped if its name ends in .gz) atomically; `-` is standard output.

    words          "text": the model's words; "ids": decimal token ids; "chars": for token i the character i + 100, as
                   NeMo and sherpa look them up; None: words if the model has them. <unk>, <s> and </s>, which KenLM
                   needs, are added as placeholders with log10 -99 if missing
    sentence_ends  write the end-of-text token of the metadata as </s> where it is an event and as <s> where it is a
                   context, so that p(</s> | h) = p(end_of_text | h) and a sentence begins after the end of another.
                   None: if words are written and its word is </s>

    Nine digits are written, which reproduce the float32 costs exactly. KenLM reads models of orders from 2 up to its
    compiled limit.
    """
    if words == "text" and model.words is None:
        raise ValueError("words: expected a model with words, got token ids only; write decimal ids")
    text = words not in ("ids", "chars") and model.words is not None
    spell: Callable[[int], str] = (lambda token: chr(FIRST_CHARACTER + token)) if words == "chars" else str
    names = list(model.words or ()) if text else list(map(spell, range(model.vocab_size)))
    if words == "chars" and model.vocab_size > MOST_CHARACTERS:
        raise ValueError(f"words: expected at most {MOST_CHARACTERS} tokens as characters, got {model.vocab_size}")
    if text:
        _refuse_words(names)
    spelling = _Spelling.of(model, names, ends_sentences(model, text) if sentence_ends is None else sentence_ends)
    tables = model.to_tables()
    with output_to(path) as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                _write(cast(BinaryIO, packed), tables, spelling)
        else:
            _write(file, tables, spelling)


def ends_sentences(model: NGram, text: bool) -> bool:
    """Whether words are written and the end-of-text token's word is </s>."""
    end_of_text = model.end_of_text
    return text and end_of_text is not None and model.words is not None and model.words[end_of_text] == EOS


def unwritable_word(names: Sequence[str]) -> str | None:
    """Why the words cannot be written to an ARPA file as text; None if they can."""
    for token, name in enumerate(names):
        if not name or name.encode().split() != [name.encode()] or "\0" in name:
            return f"word {name!r} of id {token}: ARPA words must not be empty or contain white space"
    if len(set(names)) != len(names):
        return "words: ARPA words must be distinct, got one twice"
    if UNK in names and CAPITALS in names:
        return f"words: ARPA words must be distinct, got {UNK} and {CAPITALS}, which readers take for the same"
    return None


def _refuse_words(names: Sequence[str]) -> None:
    if why := unwritable_word(names):
        raise ValueError(f"{why}; write decimal ids (words='ids')")


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The words of tokens in the file.

    names  the words of the V tokens, and <s> as number V
    added  placeholders: special words that the model lacks
    end_of_text    the token that ends a sentence and, as number V, begins the next; None without sentence ends
    """

    names: list[str]
    added: list[str]
    end_of_text: int | None

    @classmethod
    def of(cls, model: NGram, names: list[str], sentence_ends: bool) -> _Spelling:
        if not sentence_ends:
            return cls(
                [*names, BOS], [*_lacking_unknown(names), *(word for word in (BOS, EOS) if word not in names)], None
            )
        end_of_text = model.end_of_text
        if end_of_text is None:
            raise ValueError("sentence ends: the model's metadata do not give its end-of-text id; give end_of_text")
        names = [*names[:end_of_text], EOS, *names[end_of_text + 1 :]]
        if BOS in names or names.count(EOS) > 1:
            word = BOS if BOS in names else EOS
            raise ValueError(
                f"sentence ends: the model has the word {word} besides its end of text; write decimal ids (words='ids')"
            )
        return cls([*names, BOS], _lacking_unknown(names), end_of_text)

    def rows(self, tables: Tables, order: int) -> NDArray[np.uint32]:
        """The n-grams of an order >= 2 as word numbers."""
        rows = tables.spell(order)
        if self.end_of_text is None:
            return rows
        inside = (rows[:, 1:-1] == self.end_of_text).any(axis=1)
        if inside.any():
            raise ValueError(
                f"sentence ends: expected the end of text, {self.end_of_text}, only first or last in an n-gram, got "
                f"{rows[inside.argmax()].tolist()}; write the file without sentence ends"
            )
        rows[rows[:, 0] == self.end_of_text, 0] = len(self.names) - 1
        return rows


def _lacking_unknown(names: list[str]) -> list[str]:
    return [] if UNK in names or CAPITALS in names else [UNK]


def _write(file: BinaryIO, tables: Tables, spelling: _Spelling) -> None:
    added, end_of_text = spelling.added, spelling.end_of_text
    sizes = [len(added) + (end_of_text is not None) + tables.vocab_size, *tables.ngrams[1:]]
    header = "".join(f"ngram {order}={size}\n" for order, size in enumerate(sizes, 1))
    file.write(f"\\data\\\n{header}".encode())
    backoffs: list[NDArray[np.float64] | None] = [*tables.gram_backoffs(), None]
    for order, backoff in enumerate(backoffs, 1):
        file.write(f"\n\\{order}-grams:\n".encode())
        rows = np.arange(tables.vocab_size)[:, None] if order == 1 else spelling.rows(tables, order)
        if order == 1:
            file.write("".join(f"-99\t{word}\n" for word in added).encode())
            if end_of_text is not None:
                begins = math.nan if backoff is None else float(backoff[end_of_text]) / -LN10
                file.write(f"-99\t{BOS}{_tail(begins)}\n".encode())
                if backoff is not None:
                    backoff[end_of_text] = math.nan  # written with <s> above; </s> is only an event
        for lines in _lines(rows, tables.cost[order - 1], backoff, spelling.names):
            file.write(lines.encode())
    file.write(b"\n\\end\\\n")


def _lines(
    rows: NDArray[np.integer], cost: NDArray[np.float64], backoff: NDArray[np.float64] | None, names: list[str]
) -> Iterator[str]:
    """Yields the lines of one order, CHUNK at a time. backoff: NaN for n-grams that are not contexts."""
    logp = np.minimum(cost / -LN10, 0.0) + 0.0  # the cost of p = 1 may round to just below 0
    for at in range(0, len(rows), CHUNK):
        part = slice(at, at + CHUNK)
        words = [" ".join([names[token] for token in row]) for row in rows[part].tolist()]
        heads = [f"{p:.9g}\t{w}" for p, w in zip(logp[part].tolist(), words)]
        tails = [""] * len(heads) if backoff is None else [_tail(b) for b in (backoff[part] / -LN10 + 0.0).tolist()]
        yield "".join([f"{head}{tail}\n" for head, tail in zip(heads, tails)])


def _tail(backoff: float) -> str:
    """The backoff column in log10; empty for NaN."""
    return "" if math.isnan(backoff) else f"\t{backoff + 0.0:.9g}"
