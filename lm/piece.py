"""An independently readable piece of an input: a file, or a range of one."""

from __future__ import annotations

import stat
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rescore.lm.inputs import STDIN, TEXT, Form


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A piece of an input. Two pieces are equal if they are the same part of the same, unchanged file.

    path       the file; "-" is standard input
    form       its format; see inputs.py
    begin, end the range: bytes (jsonl, lines), row groups (parquet), tokens (npy, bin); end None: to the end
    size, mtime_ns  of the file, None for standard input and pipes
    field, dtype    from the options, if the format needs them
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
    def is_text(self) -> bool:
        return self.form in TEXT

    def to_json(self) -> dict[str, Any]:
        """A JSON value for manifests; a finished piece is reused while this value is the same."""
        return asdict(self)

    def check_unchanged(self) -> None:
        """Raises ValueError if the file changed since the piece was planned."""
        if self.size is not None and identity(Path(self.path)) != (self.size, self.mtime_ns):
            raise ValueError(f"{self.path}: changed since the work began; start again")


def identity(path: Path) -> tuple[int | None, int | None]:
    """Size in bytes and modification time in ns; None for standard input, pipes and devices."""
    if str(path) == STDIN:
        return None, None
    status = path.stat()
    return (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (None, None)
