"""ARPA files in and out. With `arpa_text.py` the only place that knows log10.

The words of a file are text, numbered as they come in the unigrams, or decimal token ids.
"""

from __future__ import annotations

import gzip
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from rescore.lm.arpa_text import ArpaSection, read_sections
from rescore.lm.atomic import replacing
from rescore.lm.grams import MAX_VOCABULARY
from rescore.lm.ngram import NGram
from rescore.lm.rows import BadRow
from rescore.lm.tables import NEVER, Tables

LN10 = float(np.log(10.0))
BOS, EOS, UNK = "<s>", "</s>", "<unk>"
UNKNOWN_LOG10 = -100.0  # of <unk> where a file has none, as in KenLM
NEVER_COST = 98.9 * LN10  # from this on it is ARPA's -99, "never"
SPARSE_IDS = 1 << 16
CHUNK = 1 << 16

Words = Literal["auto", "text", "ids"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArpaOptions:
    """How the words of an ARPA file become ids.

    words       "text": numbered as they come; "ids": decimal token ids; "auto": ids if all but <s>, </s>, <unk> are
    vocab_size  V of a file of ids; None: its greatest id + 1. Ids without a unigram share the probability of <unk>
    eot         the end-of-text id that <s> (as a context) and </s> (as an event) stand for in a file of ids, for
                example one that lmplz made; None where they do not occur
    """

    words: Words = "auto"
    vocab_size: int | None = None
    eot: int | None = None

    def __post_init__(self) -> None:
        if self.words not in ("auto", "text", "ids"):
            raise ValueError(f"words: expected auto, text or ids, got {self.words!r}")
        if self.vocab_size is not None and not 1 <= self.vocab_size <= MAX_VOCABULARY:
            raise ValueError(f"vocab_size: expected 1..{MAX_VOCABULARY}, got {self.vocab_size}")
        if self.eot is not None and not 0 <= self.eot < (self.vocab_size or MAX_VOCABULARY):
            raise ValueError(f"eot: expected an id in 0..{(self.vocab_size or MAX_VOCABULARY) - 1}, got {self.eot}")


def read_arpa(path: str | os.PathLike[str], options: ArpaOptions | None = None) -> NGram:
    """A model from an ARPA file; errors are ValueErrors that name file and, mostly, line.

    <s> is a context and never an event, whatever its own probability; <unk> is an ordinary word of a file of text,
    added (log10 -100) where it is missing from a model over sentences. An n-gram whose suffix is missing is read as
    KenLM reads it.
    """
    options = options or ArpaOptions()
    sections = read_sections(path)
    try:
        words = [word.decode() for word in sections[0].words]
        as_ids = _are_ids(words, options)
        return _ids_model(sections, words, options) if as_ids else _text_model(sections, words)
    except BadRow as error:
        lines = sections[error.order - 1].line
        where = f":{lines[error.row]}" if error.row < len(lines) else ""
        raise ValueError(f"{os.fspath(path)}{where}: this {error.order}-gram {error.why}") from error
    except ValueError as error:
        raise ValueError(f"{os.fspath(path)}: {error}") from error


def _are_ids(words: list[str], options: ArpaOptions) -> bool:
    ordinary = [word for word in words if word not in (BOS, EOS, UNK)]
    text = next((word for word in ordinary if not re.fullmatch("0|[1-9][0-9]{0,7}", word)), None)
    if options.words == "ids" and (text is not None or not ordinary):
        raise ValueError(f"expected decimal token ids as words, got {text!r}; words='text' reads any")
    ids = options.words == "ids" or (options.words == "auto" and text is None and bool(ordinary))
    if not ids and (options.vocab_size is not None or options.eot is not None):
        raise ValueError("vocab_size and eot are for files of decimal token ids; this one is of text")
    return ids


def _text_model(sections: list[ArpaSection], words: list[str]) -> NGram:
    """Ids in order of the unigrams; <unk> last where the file has none.

    Where </s> is a place holder the model is over fragments: it, <s> and <unk> go, as far as they are place holders.
    """
    rows, cost, backoff = _values(sections)
    holders = _place_holders(words, rows, cost[0], backoff[0])
    fragments = EOS in holders
    if fragments:
        keep = np.array([word not in holders for word in words])
        number_of = np.cumsum(keep) - 1
        rows = [number_of[own].astype(np.uint32) for own in [rows[0][keep], *rows[1:]]]
        cost[0], backoff[0] = cost[0][keep], backoff[0][keep]
        words = [word for word in words if word not in holders]
    number = {word: i for i, word in enumerate(words)}
    if UNK not in number and not fragments:
        rows[0] = np.append(rows[0], np.array([[len(words)]], np.uint32), axis=0)
        cost[0], backoff[0] = np.append(cost[0], -UNKNOWN_LOG10 * LN10), np.append(backoff[0], 0.0)
        words = [*words, UNK]
    bos, eos = number.get(BOS), number.get(EOS)
    if bos is not None:
        cost[0][bos] = NEVER
    tables = Tables.from_rows(rows, cost, backoff[:-1], vocab_size=len(words), bos=bos, eos=eos)
    return NGram.from_tables(tables, words=words)


def _place_holders(
    words: list[str], rows: list[NDArray[np.uint32]], cost: NDArray[np.float64], backoff: NDArray[np.float64]
) -> set[str]:
    """Those of <s>, </s> and <unk> that never happen and are in no longer n-gram."""
    number = {word: i for i, word in enumerate(words) if word in (BOS, EOS, UNK)}
    return {
        word
        for word, i in number.items()
        if cost[i] >= NEVER_COST and backoff[i] == 0 and not any((own == i).any() for own in rows[1:])
    }


def _ids_model(sections: list[ArpaSection], words: list[str], options: ArpaOptions) -> NGram:
    """Ids as written; <s> and </s> become the end-of-text id, <unk> is shared by the ids that the file lacks."""
    rows, cost, backoff = _values(sections)
    special = {word: i for i, word in enumerate(words) if word in (BOS, EOS, UNK)}
    ids = _token_ids(words, special, cost[0], backoff[0], options)
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
    tables = Tables.from_rows(
        rows, [unigram_cost, *cost[1:]], [unigram_backoff, *backoff[1:]][: len(rows) - 1], vocab_size=vocab_size
    )
    return NGram.from_tables(tables, metadata={} if options.eot is None else {"eot": options.eot})


def _vocabulary(ids: NDArray[np.int64], options: ArpaOptions) -> int:
    """V of a file of ids; one large id in a small file does not make it large."""
    largest = max(int(ids.max()), options.eot or 0)
    limit = options.vocab_size or MAX_VOCABULARY
    if largest >= limit:
        raise ValueError(f"expected token ids below {limit}, got {largest}")
    if options.vocab_size is None and largest > SPARSE_IDS + 16 * len(ids):
        raise ValueError(f"token id {largest} among {len(ids)} unigrams: give vocab_size if that is meant")
    return options.vocab_size or largest + 1


def _token_ids(
    words: list[str],
    special: dict[str, int],
    cost: NDArray[np.float64],
    backoff: NDArray[np.float64],
    options: ArpaOptions,
) -> NDArray[np.int64]:
    """The id of each word, int64 [words]; -1 for <unk>, and for <s> and </s> where they are place holders."""
    ids = np.array([-1 if word in special else int(word) for word in words], np.int64)
    used = [w for w in (BOS, EOS) if w in special and (cost[special[w]] < NEVER_COST or backoff[special[w]] != 0)]
    if used and options.eot is None:
        raise ValueError(
            f"{' and '.join(used)} in a file of token ids: give eot, the end-of-text id that they stand for"
        )
    if used and (ids == options.eot).any():
        raise ValueError(f"token id {options.eot}, the end of text, has a unigram of its own beside <s> and </s>")
    for word in used:
        assert options.eot is not None
        ids[special[word]] = options.eot
    return ids


def _values(
    sections: list[ArpaSection],
) -> tuple[list[NDArray[np.uint32]], list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Rows, costs and backoff costs of every order."""
    rows = [section.rows() for section in sections]
    cost = [np.array(section.logp, np.float64) * -LN10 + 0.0 for section in sections]
    backoff = [np.array(section.backoff, np.float64) * -LN10 + 0.0 for section in sections]
    return rows, cost, backoff


def write_arpa(model: NGram, path: str | os.PathLike[str], *, words: Literal["text", "ids"] | None = None) -> None:
    """Write an ARPA file (gzipped if its name ends in .gz), whole or not at all.

    words  the model's own (None: if it has any) or decimal token ids. <unk>, <s> and </s>, which KenLM asks for, are
           added with log10 -99 where missing; they are place holders then, the ids have the scores.

    Nine digits are written, which give back the float32 costs exactly. KenLM reads models of orders 2 to its own limit.
    """
    if words == "text" and model.words is None:
        raise ValueError("words: this model has none; write decimal ids")
    text = words != "ids" and model.words is not None
    names = list(model.words or ()) if text else list(map(str, range(model.vocab_size)))
    if text:
        _refuse_words(names)
    tables = model.to_tables()
    with replacing(path) as file:
        if os.fspath(path).endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                _write(cast(BinaryIO, packed), tables, names)
        else:
            _write(file, tables, names)


def unwritable_word(names: Sequence[str]) -> str | None:
    """Why the words cannot stand in an ARPA file as text, None if they can."""
    for token, name in enumerate(names):
        if not name or name.encode().split() != [name.encode()] or "\0" in name:
            return f"word {name!r} of id {token}: ARPA words are not empty and have no white space"
    if len(set(names)) != len(names):
        return "words: expected each once, as ARPA asks"
    return None


def _refuse_words(names: Sequence[str]) -> None:
    if why := unwritable_word(names):
        raise ValueError(f"{why}; write decimal ids (words='ids')")


def _write(file: BinaryIO, tables: Tables, names: list[str]) -> None:
    added = [word for word in (UNK, BOS, EOS) if word not in names]
    sizes = [len(added) + tables.vocab_size, *tables.ngrams[1:]]
    header = "".join(f"ngram {order}={size}\n" for order, size in enumerate(sizes, 1))
    file.write(f"\\data\\\n{header}".encode())
    backoffs: list[NDArray[np.float64] | None] = [*tables.gram_backoffs(), None]
    for order, backoff in enumerate(backoffs, 1):
        file.write(f"\n\\{order}-grams:\n".encode())
        if order == 1:
            file.write("".join(f"-99\t{word}\n" for word in added).encode())
        for lines in _lines(tables, names, order, backoff):
            file.write(lines.encode())
    file.write(b"\n\\end\\\n")


def _lines(tables: Tables, names: list[str], order: int, backoff: NDArray[np.float64] | None) -> Iterator[str]:
    """The lines of one order, many at a time; contexts have a backoff, which is NaN elsewhere."""
    rows = tables.spell(order)
    logp = np.minimum(tables.cost[order - 1] / -LN10, 0.0) + 0.0  # a certain event's cost may round to just below 0
    for at in range(0, len(rows), CHUNK):
        part = slice(at, at + CHUNK)
        words = [" ".join([names[token] for token in row]) for row in rows[part].tolist()]
        heads = [f"{p:.9g}\t{w}" for p, w in zip(logp[part].tolist(), words)]
        tails = [""] * len(heads)
        if backoff is not None:
            tails = ["" if math.isnan(b) else f"\t{b:.9g}" for b in (backoff[part] / -LN10 + 0.0).tolist()]
        yield "".join([f"{head}{tail}\n" for head, tail in zip(heads, tails)])
