"""Folders of unfinished work: one process at a time, bound to its inputs and options."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, TextIO

LOCK = "lock"


def work_beside(path: Path) -> Path:
    """Where the unfinished work of the output `path` lies: beside it."""
    return path.with_name(f"{path.name}.work")


def locked(folder: Path, user: str) -> TextIO:
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
