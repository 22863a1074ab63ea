"""Identifies an .ngram file, so that another file of the same name is detected."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rescore.lm.ngram import NGram
from rescore.lm.ngram_file import identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """An .ngram file: its path, its size, and the checksum of its header, which covers the content."""

    path: Path
    bytes: int
    crc32: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ModelFile:
        """Identifies a file. ValueError unless it is an .ngram file."""
        if not os.fspath(path).endswith(".ngram"):
            raise ValueError(
                f"{os.fspath(path)}: expected an .ngram file, since settings store its checksum: "
                "make one with rescore lm convert"
            )
        size, crc32 = identity(path)
        return cls(path=Path(path), bytes=size, crc32=crc32)

    def open(self) -> NGram:
        """Opens the model; ValueError if the file has changed."""
        if not self.path.exists():
            raise FileNotFoundError(
                f"{self.path}: expected the model that the settings were tuned with, got no such file: "
                "its path is relative to the folder of the settings file"
            )
        size, crc32 = identity(self.path)
        if (size, crc32) != (self.bytes, self.crc32):
            raise ValueError(
                f"{self.path}: expected the model that the settings were tuned with ({self.bytes} bytes, "
                f"checksum {self.crc32:08x}), "
                f"got another ({size} bytes, checksum {crc32:08x}): tune again with this one"
            )
        return NGram.open(self.path)
