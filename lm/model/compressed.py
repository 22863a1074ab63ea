"""Plain and compressed files, and standard input: their bytes and lines."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from rescore.lattice.extras import needed_for

MAX_BYTES = 16 << 20  # of a document: tokenizing takes 140 bytes of memory per byte, for two documents at a time
BLOCK = 1 << 20  # bytes read at once when skipping lines
BUFFER = 1 << 20
STDIN = "-"
PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)  # and OSError without errno


class Damaged(ValueError):
    """A compressed file (`packing`: one of PACKINGS) that cannot be read further."""

    def __init__(self, packing: str, message: object):
        super().__init__(str(message) or "truncated")
        self.packing = packing


@contextmanager
def open_decompressed(path: str) -> Iterator[BinaryIO]:
    """The content of a file, decompressed if its name ends in one of PACKINGS; `-` is standard input.

    Raises Damaged in the block if the compressed data are truncated or damaged.
    """
    packing = PACKINGS.get(Path(path).suffix)
    if packing and os.path.isfile(path) and not os.path.getsize(path):
        raise Damaged(packing, "the file is empty")
    try:
        with standard_input() if path == STDIN else open(path, "rb", BUFFER) as file:
            if not packing:
                yield file
                return
            with decompress(file, packing) as stream:
                yield stream
    except DAMAGE as error:
        raise Damaged(packing or "", error) from None
    except OSError as error:
        if not packing or error.errno is not None:
            raise
        raise Damaged(packing, error) from None


def packing_of(begin: bytes) -> str | None:
    """The packing of a file by its first bytes; None if it is plain."""
    return next((packing for magic, packing in MAGICS.items() if begin.startswith(magic)), None)


def decompress(file: BinaryIO, packing: str) -> BinaryIO:
    """The decompressed content of a file."""
    if packing == "zstd":
        with needed_for("reading a .zst file"):
            import pyarrow

        return cast(BinaryIO, io.BufferedReader(pyarrow.input_stream(file, compression="zstd"), BUFFER))
    opens: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
    return cast(BinaryIO, opens[packing](file, "rb"))


def standard_input() -> io.BufferedReader:
    """The bytes of standard input. OSError if it is closed."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "expected text, but it is closed; pipe text to it, or name a file", "standard input")
    return cast(io.BufferedReader, open(sys.stdin.fileno(), "rb", BUFFER, closefd=False))


def lines_of(stream: BinaryIO, begin: int, end: int | None) -> Iterator[bytes | None]:
    """Yields the lines that begin in bytes begin..end, with their line ends; None for those longer than MAX_BYTES."""
    at = first_line(stream, begin)
    while end is None or at < end:
        line = stream.readline(MAX_BYTES + 1)
        if not line:
            return
        at += len(line)
        if len(line) <= MAX_BYTES:
            yield line
            continue
        if not line.endswith(b"\n"):
            at += _skip_line(stream)
        yield None


def first_line(stream: BinaryIO, begin: int) -> int:
    """Moves the stream to the first line that begins at or after byte `begin`; returns that position."""
    if not begin:
        return 0
    stream.seek(begin - 1)
    return begin - 1 + _skip_line(stream)


def lines_before(path: str, begin: int) -> int:
    """The number of lines before the first line of a range that starts at byte `begin`."""
    number = 0
    with open(path, "rb") as stream:
        left = first_line(stream, begin)
        stream.seek(0)
        while left > 0 and (block := stream.read(min(BLOCK, left))):
            number += block.count(b"\n")
            left -= len(block)
    return number


def _skip_line(stream: BinaryIO) -> int:
    skipped = 0
    while part := stream.readline(BLOCK):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped
