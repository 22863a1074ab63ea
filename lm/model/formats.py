"""Loads and saves models by file name: .ngram, .fst, ARPA (.arpa, .lm and compressed); .lookup.bin for llama.cpp.

The code of all but the first is imported when such a name occurs.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

from rescore.lm.model.ngram import NGram

if TYPE_CHECKING:
    from rescore.lm.model.arpa import ArpaOptions

LOOKUP = ".lookup.bin"
STREAM = "-"  # standard input or output
OPEN = 32
SUFFIXES = (".ngram", ".arpa", ".arpa.gz", ".fst")  # that are written, and read


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
