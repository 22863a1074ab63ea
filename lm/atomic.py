"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of writing in the block say which file they are about, as those of opening do: a full disk, above all."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def sync(path: str | os.PathLike[str]) -> None:
    """Wait until what was written to a file, or the names in a folder, would survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def output_to(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write: standard output for `-`, else one that appears whole, as `replacing` makes it."""
    if os.fspath(path) != "-":
        with replacing(path) as file:
            yield file
        return
    sys.stdout.flush()
    with naming("standard output"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write, which takes the name `path` when the block ends and vanishes when it fails.

    When the block has ended the file is there after a loss of power too.
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with naming(target), open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync(target.parent)
    except FileExistsError as error:
        raise FileExistsError(f"{temporary}: left by another run; remove it") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
