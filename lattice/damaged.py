"""Errors of reading damaged files, which are of many kinds, as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """ValueError "PATH: WHAT: .." for whatever goes wrong within; a file that cannot be opened stays an OSError.

    zipfile raises half a dozen kinds, and numpy, which parses its headers as Python, any that Python's parser does.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"{path}: {what}: {error}") from None
