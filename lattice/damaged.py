"""One kind of error for damaged files, whatever the reading library raises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turns errors in the block into ValueError "PATH: WHAT: .."; a file that cannot be opened stays an OSError.

    zipfile raises half a dozen kinds of errors, and numpy, which parses its headers as Python, any that Python's parser
    raises.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        raise ValueError(f"{path}: {what}: {error}") from None
