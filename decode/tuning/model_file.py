"""An .ngram file, and how to tell it from another of the same name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rescore.lm.ngram import NGram
from rescore.lm.ngram_file import identity


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """An .ngram file: where it is, its size, and the checksum of its header, which covers its content."""

    path: Path
    bytes: int
    crc32: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> ModelFile:
        """ValueError if it is no .ngram file."""
        if not os.fspath(path).endswith(".ngram"):
            raise ValueError(
                f"{os.fspath(path)}: expected an .ngram file, whose checksum settings can keep: "
                "make one with rescore lm convert"
            )
        size, crc32 = identity(path)
        return cls(path=Path(path), bytes=size, crc32=crc32)

    def open(self) -> NGram:
        """The model; ValueError if another one has its name now."""
        if not self.path.exists():
            raise FileNotFoundError(
                f"{self.path}: expected the model that the settings were tuned with, got no such file: "
                "settings name it relative to their own folder"
            )
        size, crc32 = identity(self.path)
        if (size, crc32) != (self.bytes, self.crc32):
            raise ValueError(
                f"{self.path}: expected the model that the settings were tuned with ({self.bytes} bytes, "
                f"checksum {self.crc32:08x}), "
                f"got another ({size} bytes, checksum {crc32:08x}): tune again with this one"
            )
        return NGram.open(self.path)
