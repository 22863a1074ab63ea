"""A small file system that fills up."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def tiny_disk(path: Path, bytes: int) -> Iterator[Path]:
    """A file system of the given size; needs root."""
    path.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(path), b"tmpfs", 0, f"size={bytes}".encode()):
        pytest.skip(f"no file system can be mounted here: {os.strerror(ctypes.get_errno())}")
    try:
        yield path
    finally:
        libc.umount2(os.fsencode(path), 2)
