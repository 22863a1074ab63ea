"""Resolves names of inputs: the files that they match, and the format of each."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rescore.lattice.dump_header import FILE_NAME
from rescore.lm.lines import PACKINGS

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
