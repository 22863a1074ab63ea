"""Output that an interruption cannot spoil: files that appear complete or not at all, and folders of unfinished work,
for one process at a time and bound to its inputs and options.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

LOCK = "lock"


@contextmanager
def os_errors_of(path: str | os.PathLike[str]) -> Iterator[None]:
    """Names the file in OSErrors of writing in the block (a full disk, say), as errors of opening do."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


def sync(path: str | os.PathLike[str]) -> None:
    """Flushes a file's contents, or a folder's names, to disk, so that they survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with os_errors_of(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def output_to(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write: standard output for `-`, else an atomic file (see `atomic_file`)."""
    if os.fspath(path) != "-":
        with atomic_file(path) as file:
            yield file
        return
    sys.stdout.flush()
    with os_errors_of("standard output"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def followed(path: str | os.PathLike[str]) -> Path:
    """The target of a symbolic link, which need not exist; any other path as it is."""
    return Path(os.path.realpath(path) if os.path.islink(path) else path)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Makes a folder and those above it where they are missing, at the targets of symbolic links."""
    os.makedirs(os.path.realpath(path), exist_ok=True)


def is_special(path: Path) -> bool:
    """Whether it is a pipe or device, which must be written to in place."""
    return path.exists() and not path.is_file()


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write, renamed to `path` when the block ends and removed if it fails.

    Missing folders are created; a symbolic link stays, and its target is written. After the block the file survives a
    power loss. Pipes and devices are written in place.
    """
    target = followed(path)
    if is_special(target):
        with os_errors_of(path), open(path, "wb") as file:
            yield file
        return
    make_folder(target.parent)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with os_errors_of(target), open(temporary, "xb") as file:
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


def work_beside(path: Path) -> Path:
    """Where the unfinished work of the output `path` lies: beside it, or beside the target of a symbolic link."""
    path = followed(path)
    return path.with_name(f"{path.name}.work")


def lock_folder(folder: Path, user: str) -> TextIO:
    """The lock file of a folder, locked until it is closed. ValueError if another `user` (a build, say) holds it."""
    file = open(folder / LOCK, "w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_in(folder, file):
            raise BlockingIOError
    except BlockingIOError:
        file.close()
        raise ValueError(f"{folder}: in use by another {user}; wait for it or name another folder") from None
    return file


def refuse_others(folder: Path, names: Collection[str], own: Collection[str], user: str) -> None:
    """ValueError if one of the names in a folder is not from a `user`."""
    if strange := next((name for name in sorted(names) if name not in own), None):
        raise ValueError(
            f"{folder}: expected an empty folder or the work folder of a {user}, got one that holds {strange}; "
            "name another"
        )


def _is_in(folder: Path, file: TextIO) -> bool:
    """Whether the lock file is still there: the previous owner may have removed it."""
    path = folder / LOCK
    return path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))


def difference(mine: dict[str, Any], wanted: dict[str, Any]) -> str:
    """The first differences between the options of a folder's work and those wanted now, "" if there are none."""
    found = list(_differences("", mine, wanted))
    return "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")


def _differences(name: str, mine: Any, wanted: Any) -> Iterator[str]:
    if isinstance(mine, dict) and isinstance(wanted, dict):
        for key in sorted({*mine, *wanted}):
            yield from _differences(f"{name}.{key}" if name else key, mine.get(key), wanted.get(key))
    elif isinstance(mine, list) and isinstance(wanted, list) and len(mine) == len(wanted):
        for number, (own, other) in enumerate(zip(mine, wanted)):
            yield from _differences(f"{name}[{number}]", own, other)
    elif mine != wanted:
        yield f"{name}: {_short(mine)} in the folder, {_short(wanted)} now"


def _short(value: Any) -> str:
    text = json.dumps(value)
    if len(text) <= 60:
        return text
    return f"{len(value)} entries" if isinstance(value, list) else text[:57] + ".."
