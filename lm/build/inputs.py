"""Divides inputs into pieces that are read independently; reads those of Parquet files.

A piece is a file, or a range of one: bytes of plain lines, row groups of Parquet, tokens of flat token files. A
document belongs to the piece in which it begins. The pieces depend only on the files and the options.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from rescore.lattice.checked import Checked
from rescore.lattice.dump import FILE_NAME, read_header
from rescore.lattice.mapped import map_npy
from rescore.lm.build.parquet import row_groups
from rescore.lm.build.vocabulary import Tokenizer
from rescore.lm.model.compressed import PACKINGS, STDIN, is_plain, open_bytes, packing_of

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
PIECE_BYTES = 256 << 20  # of text, about a minute of tokenization on one processor
PIECE_TOKENS = 1 << 26
NPY = b"\x93NUMPY"
CLEAR = 16  # nonzero words that show the width of ids


def _one_of(names: tuple[str, ...]) -> Meta:
    return Meta(pattern=rf"\A({'|'.join(names)})\Z")


class ReadOptions(Checked, frozen=True, kw_only=True):
    """How inputs are read.

    text_field  the key or column with the text of JSON lines and Parquet files
    documents   the documents of a .txt file: every non-blank "line", or the whole "file"
    dtype       of .bin files, little-endian: uint16, uint32 or int32; None: uint16 if V <= 65536, else uint32, or a
                wider one by the zeros of the file; see `id_dtype`
    stdin       the format of standard input: "jsonl", "txt" or "bin"
    """

    text_field: Annotated[str, Meta(min_length=1)] = "text"
    documents: Annotated[str, _one_of(DOCUMENTS)] = "line"
    dtype: Annotated[str, _one_of(DTYPES)] | None = None
    stdin: Annotated[str, _one_of(STDIN_FORMATS)] = "jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of an input. Two pieces are equal if they are the same part of the same, unchanged file.

    path       the file; "-" is standard input
    form       its format; see `form_of`
    begin, end the range: bytes (jsonl, lines), row groups (parquet), tokens (npy, bin); end None: to the end
    size, mtime_ns  of the file, None for standard input and pipes
    field, dtype    from the options, if the format needs them; dtype None: of a pipe, told by its first ids
    """

    path: str
    form: Form
    begin: int = 0
    end: int | None = None
    size: int | None = None
    mtime_ns: int | None = None
    field: str | None = None
    dtype: str | None = None

    @property
    def name(self) -> str:
        """The file, for messages."""
        return "standard input" if self.path == STDIN else self.path

    @property
    def length(self) -> int:
        """Bytes, row groups or tokens, for progress bars; 0 if unknown."""
        return self.end - self.begin if self.end is not None else self.size or 0

    def to_json(self) -> dict[str, Any]:
        """A JSON value for manifests; a finished piece is reused while this value is the same."""
        return asdict(self)

    def check_unchanged(self) -> None:
        """Raises ValueError if the file changed since the piece was planned."""
        if self.size is not None and size_and_mtime(Path(self.path)) != (self.size, self.mtime_ns):
            raise ValueError(f"{self.path}: changed since the work began; start again")


def size_and_mtime(path: Path) -> tuple[int | None, int | None]:
    """Size in bytes and modification time in ns; None for standard input, pipes and devices."""
    if str(path) == STDIN:
        return None, None
    status = path.stat()
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (None, None)


def plan(
    inputs: Sequence[str | Path],
    *,
    vocab_size: int,
    tokenizer: Tokenizer | None = None,
    options: ReadOptions | None = None,
) -> list[Piece]:
    """The pieces of all inputs (see `files_of`), in order. Headers of files and folders are checked.

    vocab_size  V, which determines the least dtype of .bin files
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


def _of_dump(path: Path, tokenizer: Tokenizer | None) -> Iterator[Piece]:
    header = read_header(path / FILE_NAME)
    known = header.tokenizer_sha256
    if tokenizer and known and tokenizer.sha256 != known:
        raise ValueError(f"{path}: expected a dump of the tokenizer with sha256 {tokenizer.sha256}, got {known}")
    for shard in header.shards:
        file = path / shard.file
        size, mtime_ns = size_and_mtime(file)
        yield Piece(path=str(file), form="dump", size=size, mtime_ns=mtime_ns)


def _of_file(path: Path, form: Form, options: ReadOptions, vocab_size: int) -> Iterator[Piece]:
    size, mtime_ns = size_and_mtime(path)
    common: dict[str, Any] = {"path": str(path), "form": form, "size": size, "mtime_ns": mtime_ns}
    if form in ("jsonl", "parquet"):
        common["field"] = options.text_field
    if form == "bin":
        common["dtype"] = options.dtype
        if not options.dtype and size is not None:
            with open_bytes(path) as file:
                common["dtype"] = id_dtype(file.peek(), vocab_size, str(path))
    if size is None and form not in STREAMS:
        raise ValueError(f"{path}: expected a regular file, got a pipe or device; {form} files cannot be read from one")
    for begin, end in _ranges(path, size, form, common):
        yield Piece(begin=begin, end=end, **common)


def _ranges(path: Path, size: int | None, form: Form, common: dict[str, Any]) -> list[tuple[int, int | None]]:
    if form == "parquet":
        return row_groups(path, common["field"], PIECE_BYTES)
    if form == "npy":
        return _split(len(map_npy(path)), PIECE_TOKENS)
    if form == "bin" and size is not None:
        return _split(bin_length(path, np.dtype(common["dtype"]), size), PIECE_TOKENS)
    if form in ("jsonl", "lines") and size is not None and is_plain(path):
        return _split(size, PIECE_BYTES)
    return [(0, None)]


def _split(total: int, step: int) -> list[tuple[int, int | None]]:
    return [(begin, min(begin + step, total)) for begin in range(0, total, step)] or [(0, 0)]


def id_dtype(begin: bytes, vocab_size: int, name: str) -> str:
    """The dtype of little-endian ids, by the first bytes of a file: the narrowest for the vocabulary, or a wider one
    whose upper words are all 0. ValueError if they are big-endian, compressed, or an .npy file.
    """
    if other := packing_of(begin) or (begin.startswith(NPY) and "numpy"):
        raise ValueError(f"{name}: expected token ids alone, got {other} data; unpack or rename them, or give --dtype")
    narrow = "uint16" if vocab_size <= 1 << 16 else "uint32"
    words = np.frombuffer(begin, narrow, len(begin) // np.dtype(narrow).itemsize)
    used = np.flatnonzero(words)
    for wide in ("int64", "uint32") if len(used) >= CLEAR else ():
        step = np.dtype(wide).itemsize // words.itemsize
        if step > 1 and not (used % step).any():
            return wide
        if step > 1 and not ((used + 1) % step).any():
            raise ValueError(
                f"{name}: expected little-endian ids, got big-endian {wide} by its zeros; call byteswap() and save "
                "again, or give --dtype"
            )
    return narrow


def bin_length(path: str | Path, dtype: np.dtype, size: int) -> int:
    """Number of ids in a file of `size` bytes."""
    if size % dtype.itemsize:
        raise ValueError(
            f"{path}: expected {dtype} ids of {dtype.itemsize} bytes, got {size} bytes: truncated, or another --dtype"
        )
    return size // dtype.itemsize
