"""Token sequences from files of text or tokens."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from rescore.lm.json_line import decoded, is_blank, text_of

BATCH = 256  # documents tokenized at once
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
INPUTS = ".jsonl, .txt (also .gz) or .npy"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextTokenizer:
    """A Hugging Face `tokenizer.json`: V (its greatest id + 1), the end-of-text id, the hash of the file."""

    tokenizer: Any
    vocab_size: int
    eot: int
    sha256: str

    @classmethod
    def open(cls, path: str | Path, end_of_text: str | None = None) -> TextTokenizer:
        """ValueError if the file has no such end-of-text token; by default one of the usual names."""
        return cls.from_bytes(Path(path).read_bytes(), end_of_text, str(path))

    @classmethod
    def from_bytes(cls, raw: bytes, end_of_text: str | None = None, name: str = "tokenizer.json") -> TextTokenizer:
        """The same of a file's content; `name` is what errors call it."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError("reading text needs the package tokenizers: pip install rescore[tokenizers]") from None
        try:
            tokenizer = Tokenizer.from_buffer(raw)
        except Exception as error:  # the package raises bare Exceptions
            raise ValueError(f"{name}: expected a Hugging Face tokenizer.json, got {error}") from None
        names = [end_of_text] if end_of_text else END_OF_TEXT
        eot = next((i for i in map(tokenizer.token_to_id, names) if i is not None), None)
        if eot is None:
            raise ValueError(f"{name}: expected an end-of-text token named {', '.join(names)}; name yours with --end-of-text")
        vocab_size = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        return cls(tokenizer=tokenizer, vocab_size=vocab_size, eot=eot, sha256=hashlib.sha256(raw).hexdigest())

    def words(self, vocab_size: int | None = None) -> tuple[str, ...]:
        """The text of every id in 0..V-1, alone; pieces of characters decode to U+FFFD, ids beyond the tokenizer's to nothing."""
        ids = range(self.vocab_size if vocab_size is None else vocab_size)
        return tuple(self.tokenizer.decode([i], skip_special_tokens=False) for i in ids)

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.int32]]:
        """Ids of each document, without special tokens."""
        return [np.array(one.ids, np.int32) for one in self.tokenizer.encode_batch_fast(list(documents), add_special_tokens=False)]


def documents(path: str | Path) -> Iterator[str]:
    """The documents of a file: one per line under "text" in .jsonl, the whole file for .txt; either may be gzipped (.gz)."""
    path = Path(path)
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    if plain.suffix not in (".jsonl", ".txt"):
        raise ValueError(f"{path}: expected a name that ends in {INPUTS}")
    number = 0
    with cast(BinaryIO, gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb")) as stream:
        try:
            if plain.suffix == ".txt":
                yield decoded(stream.read())
                return
            for line in stream:
                number += 1
                if not is_blank(line):
                    yield text_of(decoded(line))
            return
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}: the gzip data are damaged after line {number}: {error}") from None
        except ValueError as error:
            place = f", line {number}" if number else ""
            raise ValueError(f"{path}{place}: {error}") from None


def sequences(path: str | Path, tokenizer: TextTokenizer | None) -> Iterator[NDArray[Any]]:
    """Token sequences of a file, each made of whole documents: a flat array of ids (.npy), or text to tokenize."""
    if Path(path).suffix == ".npy":
        yield _token_array(path)
        return
    if tokenizer is None:
        raise ValueError(f"{path}: expected {INPUTS}, of which text needs a tokenizer; give --tokenizer tokenizer.json")
    found = documents(path)
    while batch := list(islice(found, BATCH)):
        yield from tokenizer.encode(batch)


def _token_array(path: str | Path) -> NDArray[Any]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:  # numpy takes what it does not know for pickles, and offers to run them
        got = "something else, or objects" if "pickle" in str(error) else error
        raise ValueError(f"{path}: expected a .npy file of token ids, got {got}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "an archive"
        raise ValueError(f"{path}: expected a flat array of integers, got {got}")
    return array
