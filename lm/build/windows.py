"""The windows of a token stream: one n-gram per position, which determine the counts of all orders.

A stream is all documents with an end-of-text token before the first, between them and after the last. The window of
position i >= 1 is the longest n-gram of at most N tokens that ends there and does not cross an end-of-text: this token
may be its first or last, never inside. With N = 3:

    stream   end_of_text a b c end_of_text d end_of_text
    windows  [end_of_text a] [end_of_text a b] [a b c] [b c end_of_text] [end_of_text d] [end_of_text d end_of_text]

The count of an n-gram is the number of windows that end in it, so it suffices to exchange counts of windows
(`counts_files.py`), in a folder whose header, `counts.json`, docs/use/ngram-models-on-a-cluster.md describes. A window
shorter than N always begins with an end-of-text. Padded on the left with further ones it is a row of N tokens, which
packs into a few 64-bit words and can be unpadded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

import numpy as np
from msgspec import Meta, structs
from numpy.typing import ArrayLike, NDArray

from rescore.lattice.checked import Checked, Sha256, numbers, of_format, read_object, validate, whole
from rescore.lm.model.grams import check_vocabulary, token_dtype

FORMAT = "rescore-counts"
VERSION = 1
FILE_NAME = "counts.json"
MAX_TOKENS = 1 << 46  # sums of 65,536 counts stay within 63 bits
MAX_BYTES = 1 << 16


def checked_ids(sequence: ArrayLike, number: int, vocab_size: int) -> NDArray[np.generic]:
    """A sequence of ids as an array of integers [n]. TypeError or ValueError gives its number if it is not one."""
    array = numbers(sequence, f"sequence {number}")
    if array.ndim != 1:
        raise ValueError(f"sequence {number}: expected a one-dimensional array, got shape {list(array.shape)}")
    if array.size:
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= vocab_size:
            raise ValueError(f"sequence {number}: expected ids in 0..{vocab_size - 1}, got {low if low < 0 else high}")
    return array


def join(sequences: Iterable[ArrayLike], vocab_size: int, end_of_text: int) -> NDArray[np.generic]:
    """The stream of all sequences, uint16 [n] if V allows, else uint32, with an end-of-text first, between and last.

    sequences  integer arrays [n] of ids in [0, V), each of whole documents; the end-of-text before the first and after
               the last token may be missing. Empty sequences add nothing. ValueError names the sequence.
    """
    dtype = token_dtype(vocab_size)
    end = np.array([end_of_text], dtype)
    parts: list[NDArray[np.generic]] = [end]
    for number, sequence in enumerate(sequences):
        array = checked_ids(sequence, number, vocab_size)
        if not array.size:
            continue
        skip = int(array[0] == end_of_text)  # the part before it already ends with one
        parts.append(array[skip:].astype(dtype, copy=False))
        if array[-1] != end_of_text:
            parts.append(end)
    return np.concatenate(parts)


class WindowLayout(TypedDict):
    order: int
    vocab_size: int
    end_of_text: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Packs windows into keys of `words` int64, each with `per_word` tokens of `bits` bits.

    The last token is in the lowest bits of the last word.

    order       N, 1..7
    vocab_size  V; ids are in [0, V)
    end_of_text id of the end of text
    """

    order: int
    vocab_size: int
    end_of_text: int

    def __post_init__(self) -> None:
        check_vocabulary(self.vocab_size, self.order)
        whole(self.end_of_text, "end-of-text id", 0, self.vocab_size - 1)

    @property
    def layout(self) -> WindowLayout:
        """What determines the windows, for the core."""
        return {"order": self.order, "vocab_size": self.vocab_size, "end_of_text": self.end_of_text}

    @property
    def bits(self) -> int:
        return max(1, (self.vocab_size - 1).bit_length())

    @property
    def per_word(self) -> int:
        return 64 // self.bits

    @property
    def words(self) -> int:
        return -(-self.order // self.per_word)

    def place(self, back: int) -> tuple[int, int]:
        """Word and shift of the token `back` places before the last."""
        return self.words - 1 - back // self.per_word, back % self.per_word * self.bits

    def keys(self, stream: NDArray[np.generic]) -> NDArray[np.int64]:
        """The keys of a stream's windows, int64 [words, len(stream) - 1]; the stream begins with an end-of-text."""
        at = np.arange(1, len(stream))
        began = np.maximum.accumulate(np.where(stream[:-1] == self.end_of_text, at - 1, 0))
        keys = np.zeros((self.words, len(at)), np.int64)
        for back in range(self.order):
            word, shift = self.place(back)
            token = stream[1:] if not back else stream[np.maximum(at - back, began)]
            keys[word] |= token.astype(np.int64) << shift
        return keys


def group(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct keys int64 [words, m] of keys [words, n], sorted, and how often each occurs."""
    # Sorting a single word is several times faster than sorting indices.
    keys = np.sort(keys, axis=1) if len(keys) == 1 else keys[:, np.lexsort(keys[::-1])]
    if not keys.shape[1]:
        return keys, np.empty(0, np.int64)
    first = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    return keys[:, first], np.diff(np.append(first, keys.shape[1])).astype(np.int64)


class CountsHeader(Checked, frozen=True, kw_only=True):
    """N, V, the end-of-text id, the sha256 of the tokenizer's file (None: unknown), and the sum of all counts."""

    order: int
    vocab_size: int
    end_of_text: int
    tokenizer: Sha256 | None = None
    tokens: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.packing  # noqa: B018  Packing checks order, vocabulary and end-of-text

    @property
    def packing(self) -> Packing:
        return Packing(order=self.order, vocab_size=self.vocab_size, end_of_text=self.end_of_text)

    def to_json(self) -> str:
        """The text of counts.json."""
        return json.dumps({"format": FORMAT, "version": VERSION, **structs.asdict(self)}, indent=2) + "\n"


def read_counts_header(path: Path) -> CountsHeader:
    """The header of `path`, a counts.json. ValueError or OSError names the file and the field."""
    value = read_object(path, MAX_BYTES)
    value = of_format(value, path, FORMAT, (VERSION,), "another version of rescore wrote these counts")
    if "eot" in value:  # its name in files written before 2026-11-25
        value["end_of_text"] = value.pop("eot")
    return validate(value, CountsHeader, path, whole=True)
