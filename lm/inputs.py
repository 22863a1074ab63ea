"""Resolves names of inputs: the files that they match, and the format of each."""

from __future__ import annotations

import bz2
import errno
import glob
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from rescore.lattice.dump_header import FILE_NAME
from rescore.lattice.extras import needed_for

MAX_BYTES = 16 << 20  # of a document: tokenizing takes 140 bytes of memory per byte, for two documents at a time
BLOCK = 1 << 20  # bytes read at once when skipping lines
BUFFER = 1 << 20
PACKINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)  # and OSError without errno


class Damaged(ValueError):
    """A compressed file (`packing`: one of PACKINGS) that cannot be read further."""

    def __init__(self, packing: str, message: object):
        super().__init__(str(message) or "truncated")
        self.packing = packing


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The content of a file, decompressed if its name ends in one of PACKINGS; `-` is standard input.

    Raises Damaged in the block if the compressed data are truncated or damaged.
    """
    packing = PACKINGS.get(Path(path).suffix)
    if packing and os.path.isfile(path) and not os.path.getsize(path):
        raise Damaged(packing, "the file is empty")
    try:
        with standard_input() if path == "-" else open(path, "rb", BUFFER) as file:
            if not packing:
                yield file
                return
            with unpacked(file, packing) as stream:
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


def unpacked(file: BinaryIO, packing: str) -> BinaryIO:
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


Form = Literal["jsonl", "txt", "lines", "parquet", "npy", "bin", "dump"]
TEXT: tuple[Form, ...] = ("jsonl", "txt", "lines", "parquet")
STREAMS: tuple[Form, ...] = ("jsonl", "txt", "lines", "bin")  # need no seeking, so a pipe will do
PACKED = tuple(PACKINGS)
SUFFIXES: dict[str, Form] = {
    ".jsonl": "jsonl",
    ".json": "jsonl",
    ".txt": "txt",
    ".parquet": "parquet",
    ".npy": "npy",
    ".bin": "bin",
}
NAMES = ".jsonl, .json or .txt (also with .gz, .bz2, .xz or .zst), .parquet, .npy, .bin, the folder of a dump, or -"
DOCUMENTS = ("line", "file")
DTYPES = ("uint16", "uint32", "int32")
STDIN_FORMATS = ("jsonl", "txt", "bin")
STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How inputs are read.

    text_field  the key or column with the text of JSON lines and Parquet files
    documents   the documents of a .txt file: every non-blank "line", or the whole "file"
    dtype       of .bin files, little-endian: uint16, uint32 or int32; None: uint16 if V <= 65536, else uint32
    stdin       the format of standard input: "jsonl", "txt" or "bin"
    """

    text_field: str = "text"
    documents: str = "line"
    dtype: str | None = None
    stdin: str = "jsonl"

    def __post_init__(self) -> None:
        if not self.text_field:
            raise ValueError("text_field: expected a name, got an empty one")
        if self.documents not in DOCUMENTS:
            raise ValueError(f"documents: expected one of {', '.join(DOCUMENTS)}, got {self.documents!r}")
        if self.dtype not in (None, *DTYPES):
            raise ValueError(f"dtype: expected one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.stdin not in STDIN_FORMATS:
            raise ValueError(f"stdin: expected one of {', '.join(STDIN_FORMATS)}, got {self.stdin!r}")


def files_of(inputs: Sequence[str | Path]) -> list[Path]:
    """The files and dump folders that match names and patterns (*, ?, [..], ** for nested folders).

    They come in the order of the names, sorted within a pattern; `-` is standard input. FileNotFoundError for a name or
    pattern without a file, ValueError for other folders and for a file that is named twice.
    """
    found = [path for name in inputs for path in _matches(str(name))]
    seen: dict[str, Path] = {}
    for path in found:
        if other := seen.get(os.path.realpath(path)):
            raise ValueError(f"{path}: expected each file once, but {other} is the same; name it once")
        seen[os.path.realpath(path)] = path
    return found


def form_of(path: Path, options: ReadOptions) -> Form:
    """The format of a file, by its name. ValueError if the name does not tell."""
    if str(path) == STDIN:
        form: Form | None = SUFFIXES[f".{options.stdin}"]
    elif (path / FILE_NAME).is_file():
        form = "dump"
    else:
        form = SUFFIXES.get(path.suffix if path.suffix not in PACKED else path.with_suffix("").suffix)
        if form not in ("jsonl", "txt") and path.suffix in PACKED:
            form = None
    if form is None:
        raise ValueError(f"{path}: expected a name that ends in {NAMES}")
    return "lines" if form == "txt" and options.documents == "line" else form


def _matches(name: str) -> list[Path]:
    if name == STDIN or os.path.lexists(name):
        return [_no_folder(Path(name))]
    if not glob.has_magic(name):
        raise FileNotFoundError(2, "No such file", name)
    found = [Path(path) for path in sorted(glob.glob(name, recursive=True))]
    files = [path for path in found if not path.is_dir() or (path / FILE_NAME).is_file()]
    if not files:
        raise FileNotFoundError(2, "the pattern matches no file", name)
    return files


def _no_folder(path: Path) -> Path:
    if path.is_dir() and not (path / FILE_NAME).is_file():
        raise ValueError(
            f"{path}: expected files, got a folder that is not a dump; name its files, as in '{path / '*.json.gz'}'"
        )
    return path
