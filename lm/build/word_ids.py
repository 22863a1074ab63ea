"""The ids of words, kept: byte-level BPE encodes words one by one, so only new ones go through the tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from rescore.lm.build.vocabulary import Tokenizer
from rescore.lm.model.tokenizer import Encode, TextTokenizer, encode_texts

FEW_THREADS = 5  # with more, the package alone is faster than with word look-ups, which are serialised by the GIL
OFF = ("", "off", "false", "f", "no", "n", "0")  # values of TOKENIZERS_PARALLELISM
WORDS = 1 << 19  # cached, in about 80 MB
LONGEST = 64  # characters of a cached word
WHITE = {*filter(str.isspace, map(chr, range(0x3001))), "\u180e", "\u200b"}  # in any version of Unicode
SPACE = "\u0120"  # byte 32 in byte-level vocabularies
TEXTS = 32  # into which new words are joined for the tokenizer's threads
NO_IDS = np.zeros(0, np.uint32)

_known: WeakKeyDictionary[TextTokenizer, WordIds | None] = WeakKeyDictionary()


def encoder_of(tokenizer: Tokenizer) -> Encode:
    """What encodes as a tokenizer does: word by word where it may, and where that is faster. Words are kept as long as
    the tokenizer is.
    """
    if not isinstance(tokenizer, TextTokenizer):
        return tokenizer.encode
    if tokenizer not in _known:
        package = tokenizer.tokenizer
        pays = _threads() <= FEW_THREADS and is_word_wise(json.loads(package.to_str()))
        _known[tokenizer] = WordIds(partial(encode_texts, package), package.get_vocab()) if pays else None
    words = _known[tokenizer]
    return partial(tokenizer.encode, of_texts=words.encode) if words else tokenizer.encode


def _threads() -> int:
    """Number of threads of the package."""
    if os.environ.get("TOKENIZERS_PARALLELISM", "on").lower() in OFF:
        return 1
    asked = os.environ.get("RAYON_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else os.cpu_count() or 1


def is_word_wise(tokenizer: dict[str, Any]) -> bool:
    """Whether text may be cut at spaces between words, by the content of a tokenizer.json. False if unsure."""
    model, steps = tokenizer["model"], tokenizer.get("pre_tokenizer") or {}
    *before, last = steps.get("pretokenizers", ()) if steps.get("type") == "Sequence" else (steps,)
    return (
        model.get("type") == "BPE"
        and SPACE in model["vocab"]
        and not any(model.get(name) for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"))
        and tokenizer.get("normalizer") is None
        and all(token["special"] for token in tokenizer.get("added_tokens", ()))  # special ones are encoded as text
        and all(step["type"] == "Digits" for step in before)
        and last.get("type") == "ByteLevel"
        and last.get("use_regex", True)
        and not last.get("add_prefix_space", True)
    )


class Ragged(NamedTuple):
    """Rows of ids: row r is ids[ends[r] : ends[r + 1]]."""

    ids: NDArray[np.uint32]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, ids: NDArray[np.uint32], size: NDArray[np.int64]) -> Ragged:
        return cls(ids, np.concatenate([[0], np.cumsum(size)]))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def take(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The rows, concatenated, and where each begins."""
        begin = self.ends[rows]
        size = self.ends[rows + 1] - begin
        at = np.cumsum(size) - size
        return self.ids[np.repeat(begin - at, size) + np.arange(size.sum())], at


def joined(parts: Sequence[Ragged]) -> Ragged:
    """Concatenates the rows of all parts."""
    return Ragged.of(
        np.concatenate([part.ids for part in parts]), np.concatenate([np.diff(part.ends) for part in parts])
    )


class WordIds:
    """Caches the ids of words with a leading space, for the first `WORDS` distinct words."""

    def __init__(self, encode: Encode, vocabulary: dict[str, int]) -> None:
        """encode      a tokenizer for which `is_word_wise` holds
        vocabulary  the id of each of its tokens
        """
        self._encode = encode
        self._opens = np.zeros(max(vocabulary.values()) + 1, bool)  # the tokens that begin with a space
        self._opens[[token for text, token in vocabulary.items() if text.startswith(SPACE)]] = True
        self._rows: dict[str, int] = {}
        self._kept = Ragged(NO_IDS, np.zeros(1, np.int64))
        self._adding = Lock()

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.uint32]]:
        """Ids of each document, equal to those of the tokenizer. Thread-safe."""
        if not documents:
            return []
        words: list[str] = []
        first = []
        for document in documents:
            first.append(len(words))
            words += document.split(" ")
        rows = np.fromiter(map(self._rows.get, words, repeat(-1)), np.int64, len(words))
        kept = self._kept
        begins, new = _cuts(words, rows, first)
        number = {word: row for row, word in enumerate(dict.fromkeys(words[at] for at in new), len(kept))}
        rows[new] = [number[words[at]] for at in new]
        rows[first] = -1
        begin = np.flatnonzero(begins)
        stop = np.append(begin[1:], len(words))
        pieces = np.where(stop - begin == 1, rows[begin], -1)
        others = np.flatnonzero(pieces < 0)
        texts = _texts(words, begin[others], stop[others], first)
        pieces[others] = len(kept) + len(number) + np.arange(len(others))
        found, at = joined([kept, self._learnt(list(number)), _rows_of(self._encode(texts))]).take(pieces)
        return np.split(found, at[np.searchsorted(begin, first[1:])])

    def _learnt(self, words: list[str]) -> Ragged:
        """The ids of new words; adds them to the cache while there is room."""
        if not words:
            return Ragged.of(NO_IDS, np.zeros(0, np.int64))
        each = -(-len(words) // TEXTS)
        texts = [" ".join(["", *words[at : at + each]]) for at in range(0, len(words), each)]
        ids = np.concatenate(self._encode(texts))
        size = np.diff(np.flatnonzero(self._opens[ids]), append=len(ids))
        assert len(size) == len(words), "each word has one space"
        found = Ragged.of(ids, size)
        with self._adding:
            room = min(max(WORDS - len(self._kept), 0), len(words))
            row = len(self._kept)
            # Ids first, then rows: a reader that finds a row must find its ids.
            self._kept = joined([self._kept, Ragged(ids[: found.ends[room]], found.ends[: room + 1])])
            self._rows.update(zip(words[:room], range(row, row + room)))
        return found


def _texts(words: list[str], begin: NDArray[np.int64], stop: NDArray[np.int64], first: list[int]) -> list[str]:
    """The text of words begin .. stop - 1 of each piece, with a leading space unless a document begins there."""
    spaces = np.where(np.isin(begin, first), "", " ").tolist()
    return [space + " ".join(words[a:b]) for space, a, b in zip(spaces, begin.tolist(), stop.tolist())]


def _rows_of(texts: list[NDArray[np.uint32]]) -> Ragged:
    return Ragged.of(np.concatenate([NO_IDS, *texts]), np.fromiter(map(len, texts), np.int64, len(texts)))


def _cuts(words: list[str], rows: NDArray[np.int64], first: list[int]) -> tuple[NDArray[np.bool_], list[int]]:
    """Whether text may be cut before each word, and which uncached words are to be cached.

    first  the words that begin a document
    """
    begins = np.ones(len(words) + 1, bool)
    new = []
    for at in np.flatnonzero(rows < 0).tolist():
        word = words[at]
        if not word or word[0] in WHITE or word[-1] in WHITE:
            begins[at : at + 2] = False
        elif len(word) <= LONGEST:
            new.append(at)
    begins[first] = True
    return begins[:-1], new
