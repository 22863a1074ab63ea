"""Loads and saves models by file name: .ngram, .fst, ARPA (.arpa, .lm and compressed); .lookup.bin for llama.cpp."""

from __future__ import annotations

import os
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import atomic_file
from rescore.lm.model.arpa import ArpaOptions, read_arpa
from rescore.lm.model.arpa_write import write_arpa
from rescore.lm.model.compressed import PACKINGS, STDIN
from rescore.lm.model.fst import load_fst, save_fst
from rescore.lm.model.grams import spell_contexts
from rescore.lm.model.ngram import NGram

SCALE = 10_000
CONTEXT = 2  # tokens, LLAMA_NGRAM_STATIC
HEAD = 5  # int32 before the pairs
RAREST = 64  # tokens that may carry the remaining mass


def save_lookup_cache(model: NGram, path: str | os.PathLike[str]) -> None:
    """Writes the trigrams of a model as a static cache, atomically. ValueError if the model has none."""
    with atomic_file(path) as file:
        file.write(lookup_cache(model).tobytes())


def lookup_cache(model: NGram) -> NDArray[np.int32]:
    """The file's content, int32."""
    if model.order <= CONTEXT:
        raise ValueError(f"n-gram model: expected order 3 or more, got {model.order}")
    tables = model.to_tables()
    grams = tables.levels[CONTEXT]
    owners, listed = grams.context(), np.exp(-tables.cost[CONTEXT])
    rest = np.maximum(1 - np.bincount(owners, listed, grams.contexts), 0)
    others = _others(tables.cost[0], owners, grams.token, grams.contexts)
    every = np.arange(grams.contexts)
    context = np.concatenate([owners, every, every]).astype(np.int64)
    token = np.concatenate([grams.token, others[:, 0], others[:, 1]]).astype(np.int64)
    count = np.rint(SCALE * np.concatenate([listed, rest / 2, rest / 2])).astype(np.int64)
    order = np.flatnonzero((count > 0) & (token >= 0))
    order = order[np.lexsort((token[order], context[order]))]
    return _records(spell_contexts(tables.levels, CONTEXT + 1), context[order], token[order], count[order])


def _others(
    cost: NDArray[np.float64], owners: NDArray[np.uint32], tokens: NDArray[np.uint32], contexts: int
) -> NDArray[np.int64]:
    """For each context two of the model's rarest tokens without a trigram in it, int64 [C, 2].

    -1 if fewer than two of the RAREST are free. cost: of unigrams [V].
    """
    rare = np.argsort(-cost, kind="stable")[:RAREST]
    found = np.tile(rare[:2], (contexts, 1))
    place = np.full(len(cost), -1)
    place[rare] = np.arange(len(rare))
    at = np.flatnonzero(place[tokens] >= 0)  # of few n-grams
    some, row = np.unique(owners[at], return_inverse=True)
    listed = np.zeros((len(some), len(rare)), bool)
    listed[row, place[tokens[at]]] = True
    free = (~listed).sum(axis=1, keepdims=True) >= 2
    found[some] = np.where(free, rare[np.argsort(listed, axis=1, kind="stable")[:, :2]], -1)
    return found


def _records(
    contexts: NDArray[np.uint32], context: NDArray[np.int64], token: NDArray[np.int64], count: NDArray[np.int64]
) -> NDArray[np.int32]:
    """The records of the file.

    contexts [C, 2] are the tokens of contexts; context, token and count describe each pair, ascending by context.
    """
    used, first, sizes = np.unique(context, return_index=True, return_counts=True)
    starts = HEAD * np.arange(len(used)) + 2 * first
    found = np.full(HEAD * len(used) + 2 * len(token), -1, np.int32)
    for place in range(CONTEXT):
        found[starts + place] = contexts[used, place]
    found[starts + HEAD - 1] = sizes
    pairs = np.repeat(starts + HEAD, sizes) + 2 * (np.arange(len(token)) - np.repeat(first, sizes))
    found[pairs], found[pairs + 1] = token, count
    return found


LOOKUP = ".lookup.bin"
STDOUT = "-"
SUFFIXES = (".ngram", ".arpa", ".arpa.gz", ".fst")  # that are written, and read
ARPA = (".arpa", ".lm", *(f"{name}{packing}" for name in (".arpa", ".lm", "") for packing in PACKINGS))  # that are read


def is_model_file(path: str | os.PathLike[str]) -> bool:
    """Whether `load` reads files of this name."""
    return os.fspath(path).endswith((*SUFFIXES, *ARPA))


def load(
    path: str | os.PathLike[str], *, arpa: ArpaOptions | None = None, verify: bool | None = None, resident: bool = False
) -> NGram:
    """Loads a model; `-` is an ARPA file on standard input, and so are files named .lm, .gz, .bz2, .xz or .zst.

    `arpa` applies to ARPA files, `verify` and `resident` to .ngram files (see `NGram.open`). An OpenFst file must hold
    a model as `save` writes it (label = id + 1).
    """
    if os.fspath(path) == STDIN or os.fspath(path).endswith(ARPA):
        return read_arpa(path, arpa)
    suffix = _suffix(path)
    return NGram.open(path, verify, resident=resident) if suffix == ".ngram" else load_fst(path)


def save(
    model: NGram,
    path: str | os.PathLike[str],
    *,
    words: Literal["text", "ids"] | None = None,
    sentence_ends: bool | None = None,
    failure_label: int = 0,
) -> None:
    """Saves a model atomically in the format of the file name; `-` is ARPA on standard output.

    `words` and `sentence_ends` are as in `write_arpa`, `failure_label` as in `save_fst`. A name that ends in
    .lookup.bin means llama.cpp's static n-gram cache, which cannot be read back.
    """
    if is_arpa(path):
        write_arpa(model, path, words=words, sentence_ends=sentence_ends)
        return
    if os.fspath(path).endswith(LOOKUP):
        save_lookup_cache(model, path)
        return
    suffix = _suffix(path)
    if suffix == ".ngram":
        model.save(path)
    else:
        save_fst(model, path, failure_label=failure_label)


def is_arpa(path: str | os.PathLike[str]) -> bool:
    """Whether `save` writes ARPA to this path."""
    return os.fspath(path) == STDOUT or os.fspath(path).endswith((".arpa", ".arpa.gz"))


def _suffix(path: str | os.PathLike[str]) -> str:
    suffix = next((suffix for suffix in SUFFIXES if os.fspath(path).endswith(suffix)), None)
    if suffix is None:
        raise ValueError(f"{os.fspath(path)}: expected a name that ends in {', '.join(SUFFIXES)}")
    return suffix
