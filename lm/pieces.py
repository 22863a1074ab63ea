"""Divides inputs into pieces that are read independently.

A piece is a file, or a range of one: bytes of plain lines, row groups of Parquet, tokens of flat token files. A
document belongs to the piece in which it begins. The pieces depend only on the files and the options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rescore.lattice.dump_header import FILE_NAME, read_header
from rescore.lattice.mapped import map_npy
from rescore.lm import parquet, token_files
from rescore.lm.inputs import PACKED, STREAMS, TEXT, Form, ReadOptions, files_of, form_of
from rescore.lm.piece import Piece, identity
from rescore.lm.tokenizer import Tokenizer

PIECE_BYTES = 256 << 20  # of text, about a minute of tokenization on one processor
PIECE_TOKENS = 1 << 26


def plan(
    inputs: Sequence[str | Path],
    *,
    vocab_size: int,
    tokenizer: Tokenizer | None = None,
    options: ReadOptions | None = None,
) -> list[Piece]:
    """The pieces of all inputs (see `files_of`), in order. Headers of files and folders are checked.

    vocab_size  V, which determines the dtype of .bin files
    tokenizer   required for text (ValueError names the first such input); dumps of another tokenizer are an error
    """
    options = options or ReadOptions()
    pieces: list[Piece] = []
    for path in files_of(inputs):
        form = form_of(path, options)
        if form in TEXT and tokenizer is None:
            raise ValueError(f"{path}: text needs a tokenizer: give --tokenizer tokenizer.json")
        pieces.extend(_of_dump(path, tokenizer) if form == "dump" else _of_file(path, form, options, vocab_size))
    return pieces


def _of_dump(path: Path, tokenizer: Tokenizer | None) -> Iterator[Piece]:
    header = read_header(path / FILE_NAME)
    known = header.tokenizer_sha256
    if tokenizer and known and tokenizer.sha256 != known:
        raise ValueError(f"{path}: expected a dump of the tokenizer with sha256 {tokenizer.sha256}, got {known}")
    for shard in header.shards:
        file = path / shard.file
        size, mtime_ns = identity(file)
        yield Piece(path=str(file), form="dump", size=size, mtime_ns=mtime_ns)


def _of_file(path: Path, form: Form, options: ReadOptions, vocab_size: int) -> Iterator[Piece]:
    size, mtime_ns = identity(path)
    common: dict[str, Any] = {"path": str(path), "form": form, "size": size, "mtime_ns": mtime_ns}
    if form in ("jsonl", "parquet"):
        common["field"] = options.text_field
    if form == "bin":
        common["dtype"] = options.dtype or ("uint16" if vocab_size <= 1 << 16 else "uint32")
    if size is None and form not in STREAMS:
        raise ValueError(f"{path}: expected a regular file, got a pipe or device; {form} files cannot be read from one")
    for begin, end in _ranges(path, size, form, common):
        yield Piece(begin=begin, end=end, **common)


def _ranges(path: Path, size: int | None, form: Form, common: dict[str, Any]) -> list[tuple[int, int | None]]:
    if form == "parquet":
        return parquet.ranges(path, common["field"], PIECE_BYTES)
    if form == "npy":
        return _split(len(map_npy(path)), PIECE_TOKENS)
    if form == "bin" and size is not None:
        return _split(token_files.bin_length(path, np.dtype(common["dtype"]), size), PIECE_TOKENS)
    if form in ("jsonl", "lines") and size is not None and path.suffix not in PACKED:
        return _split(size, PIECE_BYTES)
    return [(0, None)]


def _split(total: int, step: int) -> list[tuple[int, int | None]]:
    return [(begin, min(begin + step, total)) for begin in range(0, total, step)] or [(0, 0)]
