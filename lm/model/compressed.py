"""Text as it comes, in files and on standard input: plain or compressed, in UTF-8, UTF-16 or UTF-32; its bytes and
lines.
"""

from __future__ import annotations

import codecs
import errno
import io
import lzma
import os
import re
import sys
import zlib
from bz2 import BZ2Decompressor
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from rescore.lattice.extras import needed_for

MAX_BYTES = 16 << 20  # of a document: tokenizing takes 140 bytes of memory per byte, for two documents at a time
BLOCK = 1 << 20  # bytes read at once when skipping lines
BUFFER = 1 << 20
STEP = 1 << 12  # compressed bytes unpacked at once, to at most some 80 MB
SAMPLE = 1 << 12  # bytes at the beginning of a file that show what it holds
STDIN = "-"
PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
MAGICS = {
    "gzip": rb"\x1f\x8b\x08",
    "bzip2": rb"BZh[1-9](1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\0",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
}
SHORTEST = 14  # bytes of a compressed file
BOMB_BYTES = 64 << 20
MOSTLY, SOME = 0.75, 0.02  # shares of bytes
STREAM: dict[str, Any] = {
    "gzip": partial(zlib.decompressobj, 31),
    "bzip2": BZ2Decompressor,
    "xz": lzma.LZMADecompressor,
}
# That of UTF-16 begins that of UTF-32.
MARKS = ((b"\xff\xfe\0\0", "utf-32"), (b"\0\0\xfe\xff", "utf-32"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


class Damaged(ValueError):
    """Compressed data, or text of an encoding, that cannot be read further."""

    @classmethod
    def of(cls, form: str, error: Exception) -> Damaged:
        return cls(f"{form} data damaged: {str(error) or 'truncated'}; copy the file again")


@contextmanager
def open_text(path: str | os.PathLike[str], most_times: int | None = None) -> Iterator[BinaryIO]:
    """The content of a file in UTF-8, unpacked and converted as its first bytes ask for; `-` is standard input.

    Damaged in the block if data are truncated or damaged, or are more than BOMB_BYTES and more than `most_times` the
    size of the compressed data.
    """
    with open_bytes(path) as file, text_in(file, path, most_times) as text:
        yield text


@contextmanager
def text_in(file: io.BufferedReader, path: str | os.PathLike[str], most_times: int | None = None) -> Iterator[BinaryIO]:
    """The same of a file that is open at its beginning."""
    try:
        packing = packing_of(file.peek(SAMPLE)[:SAMPLE], PACKINGS.get(Path(path).suffix))
        text = _stream(unpacked(file, packing, most_times)) if packing else file
        encoding = encoding_of(text.peek(SAMPLE)[:SAMPLE])
        yield _stream(_in_utf8(text, encoding)) if encoding else text
    except Damaged as error:
        raise Damaged(f"{'standard input' if os.fspath(path) == STDIN else path}: {error}") from None


def is_plain(path: str | os.PathLike[str]) -> bool:
    """Whether `open_text` gives the bytes of a file as they are, so that it can be divided."""
    with open_text(path) as text:
        return isinstance(cast(io.BufferedReader, text).raw, io.FileIO)


def packing_of(begin: bytes, named: str | None = None) -> str | None:
    """The packing of a file by its first bytes; None if it is plain.

    named: by its name, which counts if they are damaged: neither those of a packing nor text.
    """
    found = next((packing for packing, magic in MAGICS.items() if re.match(magic, begin, re.DOTALL)), None)
    return found or (None if len(begin) >= SHORTEST and _is_text(begin) else named)


def encoding_of(begin: bytes) -> str | None:
    """The encoding of a text by its first bytes, UTF-16 or UTF-32; None if they look like neither.

    By a byte-order mark; else by the zeros and other small bytes of characters of most alphabets, every other byte.
    """
    if marked := next((name for mark, name in MARKS if begin.startswith(mark)), None):
        return marked
    columns = np.frombuffer(begin[: len(begin) & ~3], np.uint8).reshape(-1, 4)
    if not len(columns) or (columns != 0).all():
        return None
    zero, small = (columns == 0).mean(axis=0), (columns < 32).mean(axis=0)
    for order, high in (("le", [3, 1, 2]), ("be", [0, 2, 1])):
        if zero[high[0]] == 1 and zero[high[2]] > MOSTLY:
            return f"utf-32-{order}"
        if small[high[:2]].min() > MOSTLY and zero[high[:2]].mean() > SOME:
            return f"utf-16-{order}"
    return None


def _is_text(begin: bytes) -> bool:
    try:
        codecs.getincrementaldecoder(encoding_of(begin) or "utf-8")().decode(begin)
    except UnicodeDecodeError:
        return False
    return True


def unpacked(file: io.BufferedReader, packing: str, most_times: int | None = None) -> Iterator[bytes]:
    """Yields the content of a compressed file: of all its streams, members or frames. Damaged if something else
    follows, a checksum does not match, or it expands more than `open_text` allows.
    """
    size = 0
    try:
        if not file.peek(1):
            raise EOFError
        for block in _frames(file) if packing == "zstd" else _streams(file, packing):
            size += len(block)
            if most_times and size > BOMB_BYTES and file.seekable() and size > most_times * file.tell():
                raise Damaged(
                    f"expected {packing} data that expand at most {most_times} times; if it is right, unpack it"
                )
            yield block
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise Damaged.of(packing, error) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise Damaged.of(packing, error) from None


def _streams(file: BinaryIO, packing: str) -> Iterator[bytes]:
    """Python's own readers take damage behind the first stream of xz and bzip2 for the end."""
    stream, rest, padding = STREAM[packing](), b"", 0
    while block := rest or file.read(STEP):
        rest = b""
        if stream.eof:
            padding += len(block) - len(block := block.lstrip(b"\0"))
            if not block:
                continue
            stream = STREAM[packing]()
        yield stream.decompress(block)
        rest = stream.unused_data
    if not stream.eof:
        raise EOFError
    if packing == "xz" and padding % 4:
        raise lzma.LZMAError(f"expected padding of a multiple of 4 bytes, got {padding}")


def _frames(file: BinaryIO) -> Iterator[bytes]:
    with needed_for("reading zstd"):
        import pyarrow

    yield from iter(partial(pyarrow.input_stream(file, compression="zstd").read, BLOCK), b"")


def _in_utf8(text: BinaryIO, encoding: str) -> Iterator[bytes]:
    try:
        for part in codecs.iterdecode(iter(partial(text.read, BLOCK), b""), encoding):
            yield part.encode()
    except UnicodeDecodeError as error:
        raise Damaged.of(encoding.upper(), error) from None


class _Blocks(io.RawIOBase):
    """A stream of blocks that are made as it is read."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._held = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._held = memoryview(block)
        size = min(len(buffer), len(self._held))
        buffer[:size], self._held = self._held[:size], self._held[size:]
        return size


def _stream(blocks: Iterator[bytes]) -> io.BufferedReader:
    return io.BufferedReader(_Blocks(blocks), BUFFER)


def open_bytes(path: str | os.PathLike[str]) -> io.BufferedReader:
    """A file as it is; `-` is standard input."""
    return standard_input() if os.fspath(path) == STDIN else cast(io.BufferedReader, open(path, "rb", BUFFER))


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
