"""Atomic writing of files: a file appears complete or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Names the file in OSErrors of writing in the block (a full disk, say), as errors of opening do."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def sync(path: str | os.PathLike[str]) -> None:
    """Flushes a file's contents, or a folder's names, to disk, so that they survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def output_to(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write: standard output for `-`, else an atomic file (see `replacing`)."""
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
    """A binary file to write, renamed to `path` when the block ends and removed if it fails.

    Missing folders are created. After the block the file survives a power loss.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
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
