"""Models in files of any kind, told apart by their names: .ngram, .arpa, .arpa.gz, .fst; .lookup.bin for llama.cpp."""

from __future__ import annotations

import os
from typing import Literal

from rescore.lm.arpa import ArpaOptions, read_arpa, write_arpa
from rescore.lm.fst import load_fst, save_fst
from rescore.lm.lookup_cache import save_lookup_cache
from rescore.lm.ngram import NGram

LOOKUP = ".lookup.bin"
SUFFIXES = (".ngram", ".arpa", ".arpa.gz", ".fst")


def load(
    path: str | os.PathLike[str], *, arpa: ArpaOptions | None = None, verify: bool | None = None, resident: bool = False
) -> NGram:
    """The model in a file; `arpa` for the words of ARPA files, `verify` and `resident` for .ngram files (see
    `NGram.open`).

    An OpenFst file has to hold a model as `save` writes it (label = id + 1, epsilon as failure).
    """
    suffix = _suffix(path)
    if suffix == ".ngram":
        return NGram.open(path, verify, resident=resident)
    if suffix == ".fst":
        return load_fst(path)
    return read_arpa(path, arpa)


def save(model: NGram, path: str | os.PathLike[str], *, words: Literal["text", "ids"] | None = None) -> None:
    """Write a model in the form that the name of the file asks for, whole or not at all; `words` as in `write_arpa`.

    A name that ends in .lookup.bin asks for llama.cpp's static n-gram cache, which cannot be read back.
    """
    if os.fspath(path).endswith(LOOKUP):
        save_lookup_cache(model, path)
        return
    suffix = _suffix(path)
    if suffix == ".ngram":
        model.save(path)
    elif suffix == ".fst":
        save_fst(model, path)
    else:
        write_arpa(model, path, words=words)


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = next((suffix for suffix in SUFFIXES if os.fspath(path).endswith(suffix)), None)
    if suffix is None:
        raise ValueError(f"{os.fspath(path)}: expected a name that ends in {', '.join(SUFFIXES)}")
    return suffix
