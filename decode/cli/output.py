"""What verbs give back and write: tables, JSON, and files that are tried before the work and appear whole."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.cli.options import Misuse, Output
from rescore.decode.cli.values import printable
from rescore.lattice.atomic import atomic_file, is_special

JSON_VERSION = 2  # of the --json format: changes if a field is removed or changes its meaning


@dataclass(frozen=True, slots=True)
class Column:
    """A header and one cell per label. `prose`: of any length, aligned to the left."""

    header: str
    cells: Sequence[str]
    prose: bool = False


def column(header: str, values: Iterable[Any], form: str = "", missing: str = "") -> Column:
    """Values in a format, with `missing` in place of None."""
    return Column(header, [missing if value is None else format(value, form) for value in values])


def columns_of(rows: Sequence[Mapping[str, Any]], *figures: tuple[str, str, str]) -> list[Column]:
    """Columns of the rows' figures, each given by its header, key and format."""
    return [column(header, (row[key] for row in rows), form) for header, key, form in figures]


def half_width(low: float | None, high: float | None) -> float | None:
    """Half of an interval, if it has ends."""
    return None if low is None or high is None else (high - low) / 2


def ends(low: float | None, high: float | None) -> str | None:
    """The ends of an interval of differences, if it has some."""
    return None if low is None or high is None else f"{low:+.3f} {high:+.3f}"


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table, printed as several that repeat the labels where it is too wide for the screen.

    header  of the labels
    bold    labels of the rows to stress
    title   on a line of its own above the table, after a blank one
    """

    header: str
    labels: Sequence[str]
    columns: Sequence[Column]
    bold: Collection[str] = ()
    title: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one pair per line."""

    rows: Sequence[tuple[str, Any]]


Part = TextTable | Facts | str
"""Of what a verb prints: a table, a list of facts, or a line."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a verb found.

    figures  for --json; None if the verb has written its own form
    parts    printed unless the JSON goes to standard output: to standard error if something else does, or if `beside`
    status   the exit status
    failed   said on standard error behind the rest
    listed   whether the parts name the files that were written to a folder
    """

    figures: dict[str, Any] | None
    parts: Sequence[Part] = ()
    status: int = 0
    failed: str = ""
    beside: bool = False
    listed: bool = False


@contextmanager
def resumable(kept: Callable[[], str]) -> Iterator[None]:
    """Says after an interruption or a failure in the block what is kept for the same command to resume.

    kept: what, "" if nothing. An error in the input says what to do about it: the same command would only repeat it.
    """
    try:
        yield
    except ValueError:
        raise
    except BaseException as error:
        if not (told := kept()):
            raise
        told += "; the same command continues"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(told) from None
        note(told)
        raise


def check_stdin(*names: object) -> None:
    """Misuse if standard input (-) is named twice. Prints a note if it is a terminal."""
    if (count := list(map(str, names)).count("-")) > 1:
        raise Misuse("-: expected standard input at most once, got it twice")
    if count and sys.stdin is not None and sys.stdin.isatty():
        note("reading from the terminal; Ctrl-D ends the input")


def note(text: str) -> None:
    """Prints a note on standard error, also with --json."""
    print(f"note: {printable(text)}", file=sys.stderr)


def write_text(path: Path, text: str) -> None:
    """Writes to standard output for `-`, else to a file, atomically."""
    if str(path) == "-":
        print(text, end="")
        return
    with atomic_file(path) as file:
        file.write(text.encode("utf-8", "replace"))


def write_json(path: Path, value: Any) -> None:
    """Writes to standard output for `-`, else to a file, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def check_places(outputs: Sequence[Output], inputs: Iterable[Path] = ()) -> None:
    """OSError or Misuse if an output cannot be written, two are written to one place, or one to an input's. Called
    before the work.
    """
    read = {path.resolve() for path in inputs if not is_special(path)}
    for number, one in enumerate(outputs):
        check_place(one.path, folder=one.folder)
        own = one.path.resolve()
        if own in read and not one.in_place:
            raise Misuse(f"{one.option}: expected another place than that of an input, got {one.path}")
        for other in outputs[:number]:
            if other.path.resolve() == own and not is_special(one.path):
                place = "standard output (-)" if str(one.path) == "-" else one.path
                raise Misuse(f"{other.option}, {one.option}: expected different places, got {place} for both")


def check_place(path: Path, *, folder: bool = False) -> None:
    """OSError or Misuse if a file, or the files of a folder, cannot be written. Tries it, and leaves nothing behind."""
    if str(path) == "-":
        if sys.stdout is None:
            raise OSError(errno.EBADF, "cannot be written: it is closed", "standard output")
        return
    if path.is_dir() and not folder:
        raise Misuse(f"{path}: expected a file to write, got a folder")
    if folder and path.exists() and not path.is_dir():
        raise Misuse(f"{path}: expected a folder to write to, got a file")
    try:
        nearest = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    except FileNotFoundError:
        raise OSError(errno.ENOENT, "cannot be written: the current folder was deleted", str(path)) from None
    if not nearest.is_dir():
        raise Misuse(f"{path}: cannot be written: {nearest} is not a folder")
    try:
        if path.is_dir():
            _try_to_write(path / "file")
        elif not is_special(path):
            _try_to_write(path.resolve())
        elif not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise OSError(error.errno, f"cannot be written: {error.strerror or error}", str(path)) from None


class _Tried(Exception):
    pass


def _try_to_write(path: Path) -> None:
    """Writes as `atomic_file` does, but stops before the file gets its name. Asking for permissions is not enough: root
    has all of them, on read-only disks too.
    """
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        if path.exists():
            open(path, "ab").close()  # fails for files that may not be replaced either
        with suppress(_Tried), atomic_file(path) as file:
            file.write(b"\0")
            file.flush()
            raise _Tried
    finally:
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()
