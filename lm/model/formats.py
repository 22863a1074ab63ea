"""Loads and saves models by file name: .ngram, .fst, ARPA (.arpa, .lm and compressed); .lookup.bin for llama.cpp.

The code of all but the first is imported when such a name occurs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal, get_args, overload

from rescore.lm.model.grams import MAX_VOCABULARY
from rescore.lm.model.ngram import NGram

LOOKUP = ".lookup.bin"
STREAM = "-"  # standard input or output
OPEN = 32
SUFFIXES = (".ngram", ".arpa", ".arpa.gz", ".fst")  # that are written, and read
Words = Literal["auto", "text", "ids", "chars"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArpaOptions:
    """How the words of an ARPA file become ids.

    words       "text": numbered in order; "ids": decimal token ids; "chars": token i is the character
                i + 100; "auto": ids if all but <s>, </s>, <unk> are
    vocab_size  V. Ids without a unigram share the probability of <unk> in a file of ids, and are an error in a file of
                text. None: the greatest id + 1, or the number of words
    end_of_text the id that <s> (as a context) and </s> (as an event) stand for, in files by lmplz or by `write_arpa`
                with sentence ends. In a file of text </s> gets that id, and <s> and placeholders are dropped. None:
                <s> and </s> are words of a file of text, and an error in a file of ids
    """

    words: Words = "auto"
    vocab_size: int | None = None
    end_of_text: int | None = None

    def __post_init__(self) -> None:
        if self.words not in (known := get_args(Words)):
            raise ValueError(f"words: expected {' or '.join(known)}, got {self.words!r}")
        if self.vocab_size is not None and not 1 <= self.vocab_size <= MAX_VOCABULARY:
            raise ValueError(f"vocab_size: expected 1..{MAX_VOCABULARY}, got {self.vocab_size}")
        if self.end_of_text is not None and not 0 <= self.end_of_text < (self.vocab_size or MAX_VOCABULARY):
            raise ValueError(
                f"end_of_text: expected an id in 0..{(self.vocab_size or MAX_VOCABULARY) - 1}, got {self.end_of_text}"
            )


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether `load` reads files of this name."""
    return os.fspath(path).endswith(SUFFIXES) or os.fspath(path).endswith(_of("arpa").SUFFIXES)


def load(
    path: str | os.PathLike[str], *, arpa: ArpaOptions | None = None, verify: bool | None = None, resident: bool = False
) -> NGram:
    """Loads a model; `-` is an ARPA file on standard input, and so are files named .lm, .gz, .bz2, .xz or .zst.

    `arpa` applies to ARPA files, `verify` and `resident` to .ngram files (see `NGram.open`). An OpenFst file must hold
    a model as `save` writes it (label = id + 1).
    """
    name = os.fspath(path)
    if name.endswith(".ngram"):
        return NGram.open(path, verify, resident=resident)
    if name == STREAM or name.endswith(_of("arpa").SUFFIXES):
        return _of("arpa").read_arpa(path, arpa)
    _suffix(path)  # ValueError for other names
    return _of("fst").load_fst(path)


@overload
def model_of(lm: NGram | str | os.PathLike[str]) -> NGram: ...
@overload
def model_of(lm: NGram | str | os.PathLike[str] | None) -> NGram | None: ...
def model_of(lm: NGram | str | os.PathLike[str] | None) -> NGram | None:
    """A model, or that of a file, which is opened once for all who name it until it changes; of those that nobody uses,
    the last `OPEN` stay open.
    """
    if lm is None or isinstance(lm, NGram):
        return lm
    try:
        stat = os.stat(lm)
    except OSError:
        return load(lm)  # which says what is wrong
    return _opened(os.fspath(lm), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=OPEN)
def _opened(path: str, size: int, mtime_ns: int) -> NGram:
    return load(path)


def save(
    model: NGram,
    path: str | os.PathLike[str],
    *,
    words: Literal["text", "ids", "chars"] | None = None,
    sentence_ends: bool | None = None,
    failure_label: int = 0,
) -> None:
    """Saves a model atomically in the format of the file name; `-` is ARPA on standard output.

    `words` and `sentence_ends` are as in `write_arpa`, `failure_label` as in `save_fst`. A name that ends in
    .lookup.bin means llama.cpp's static n-gram cache, which cannot be read back.
    """
    if is_arpa(path):
        _of("arpa_write").write_arpa(model, path, words=words, sentence_ends=sentence_ends)
        return
    if os.fspath(path).endswith(LOOKUP):
        _of("lookup_cache").save_lookup_cache(model, path)
        return
    suffix = _suffix(path)
    if suffix == ".ngram":
        model.save(path)
    else:
        _of("fst").save_fst(model, path, failure_label=failure_label)


def _of(module: str) -> Any:
    """The code of a format."""
    return import_module(f"rescore.lm.model.{module}")


def is_arpa(path: str | os.PathLike[str]) -> bool:
    """Whether `save` writes ARPA to this path."""
    return os.fspath(path) == STREAM or os.fspath(path).endswith((".arpa", ".arpa.gz"))


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = next((suffix for suffix in SUFFIXES if os.fspath(path).endswith(suffix)), None)
    if suffix is None:
        raise ValueError(f"{os.fspath(path)}: expected a name that ends in {', '.join(SUFFIXES)}")
    return suffix
