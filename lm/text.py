"""Token sequences from files of text or tokens."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BATCH = 256  # documents tokenized at once
END_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TextTokenizer:
    """A Hugging Face `tokenizer.json`: V, the end-of-text id, the hash of the file, the tokens as text."""

    tokenizer: Any
    vocab_size: int
    eot: int
    sha256: str

    @classmethod
    def open(cls, path: str | Path, end_of_text: str | None = None) -> TextTokenizer:
        """ValueError if the file has no such end-of-text token; by default one of the usual names."""
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise ValueError("reading text needs the package tokenizers: pip install rescore[tokenizers]") from None
        raw = Path(path).read_bytes()
        try:
            tokenizer = Tokenizer.from_buffer(raw)
        except Exception as error:  # the package raises bare Exceptions
            raise ValueError(f"{path}: not a Hugging Face tokenizer.json ({error})") from None
        names = [end_of_text] if end_of_text else END_OF_TEXT
        eot = next((i for i in map(tokenizer.token_to_id, names) if i is not None), None)
        if eot is None:
            raise ValueError(f"{path}: expected an end-of-text token named {', '.join(names)}; name yours with --end-of-text")
        return cls(tokenizer=tokenizer, vocab_size=tokenizer.get_vocab_size(), eot=eot, sha256=hashlib.sha256(raw).hexdigest())

    def words(self) -> tuple[str, ...]:
        """The text of every id, alone; pieces of characters decode to U+FFFD."""
        return tuple(self.tokenizer.decode([i], skip_special_tokens=False) for i in range(self.vocab_size))

    def encode(self, documents: Sequence[str]) -> list[NDArray[np.int32]]:
        """Ids of each document, without special tokens."""
        return [np.array(one.ids, np.int32) for one in self.tokenizer.encode_batch_fast(list(documents), add_special_tokens=False)]


def documents(path: str | Path) -> Iterator[str]:
    """The documents of a file: one per line under "text" in .jsonl, the whole file for .txt; either may be gzipped (.gz)."""
    path = Path(path)
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    kind = suffixes[-1] if suffixes else ""
    if kind not in (".jsonl", ".json", ".txt"):
        raise ValueError(f"{path}: expected .jsonl, .txt (also .gz) or .npy, got {path.name}")
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as stream:
        try:
            if kind == ".txt":
                yield stream.read()
                return
            for number, line in enumerate(stream, 1):
                row = json.loads(line)
                if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                    raise ValueError('expected an object with a string "text"')
                yield row["text"]
        except (ValueError, EOFError, gzip.BadGzipFile) as error:
            place = f", line {number}" if kind != ".txt" and "number" in locals() else ""
            raise ValueError(f"{path}{place}: {error}") from None


def sequences(path: str | Path, tokenizer: TextTokenizer | None) -> Iterator[NDArray[Any]]:
    """Token sequences of a file, each made of whole documents: a flat array of ids (.npy), or text to tokenize."""
    if Path(path).suffix == ".npy":
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path}: not a .npy file of token ids ({error})") from None
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(f"{path}: expected a flat array of integers, got {array.dtype} {list(array.shape)}")
        yield array
        return
    if tokenizer is None:
        raise ValueError(f"{path}: text needs a tokenizer; give --tokenizer tokenizer.json")
    found = documents(path)
    while batch := list(islice(found, BATCH)):
        yield from tokenizer.encode(batch)
