"""Output of the verbs: tables, progress bars, JSON, files written atomically."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Table

from rescore.decode.cli.arguments import Misuse, Output, harmless, printable
from rescore.lattice.atomic import replacing
from rescore.lattice.short_repr import readable

PIPE_WIDTH = 120  # width of tables without a terminal; lines are not broken there
UNBROKEN = 10_000
SPEED_SECONDS = 600  # the time left is estimated from so many seconds: batches may take a minute each
JSON_VERSION = 2  # of the --json format: changes if a field is removed or changes its meaning


class Screen(Console):
    """A console that interprets no markup and escapes control characters in text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


def console(*, stderr: bool = False) -> Screen:
    """Standard output or error."""
    out = Screen(stderr=stderr)
    return out if out.is_terminal else Screen(width=UNBROKEN, stderr=stderr)


def width() -> int:
    """The greatest width of a table, in characters."""
    out = console()
    return out.width if out.is_terminal else PIPE_WIDTH


def show(*parts: RenderableType, stderr: bool = False) -> None:
    """Prints tables and lines, without trailing blanks."""
    print(rendered(*parts, screen=console(stderr=stderr)), end="", file=sys.stderr if stderr else None)


def rendered(*parts: RenderableType, screen: Screen | None = None) -> str:
    """Tables and lines as text, without trailing blanks; without a screen, as for a file."""
    screen = screen or Screen(width=UNBROKEN, file=io.StringIO())
    with screen.capture() as captured:
        for part in parts:
            screen.print(part, soft_wrap=isinstance(part, str))
    return "\n".join(line.rstrip() for line in captured.get().split("\n"))


def check_stdin(*names: object) -> None:
    """Misuse if standard input (-) is named twice. Prints a note if it is a terminal."""
    if (count := list(map(str, names)).count("-")) > 1:
        raise Misuse("-: expected standard input at most once, got it twice")
    if count and sys.stdin is not None and sys.stdin.isatty():
        note("reading from the terminal; Ctrl-D ends the input")


def note(text: str) -> None:
    """Prints a note on standard error, also with --json."""
    print(f"note: {printable(text)}", file=sys.stderr)


def facts(rows: list[tuple[str, Any]]) -> Table:
    """Names and values, one pair per line."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(printable(name), printable(readable(value)))
    return table


def progress_bar() -> Progress:
    """A progress bar on standard error, if that is a terminal."""
    screen = Screen(stderr=True)
    # The description shrinks first.
    what = TextColumn("{task.description}", markup=False, table_column=rich_table.Column(ratio=1, no_wrap=True))
    return Progress(
        what,
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        expand=True,
        transient=True,
        disable=not screen.is_terminal,
        speed_estimate_period=SPEED_SECONDS,
    )


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


@contextmanager
def stages() -> Iterator[Any]:
    """A spinner for work of unknown length, on standard error if that is a terminal. Yields a function that sets its
    text.
    """
    screen = Screen(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)
        yield lambda stage: bar.update(task, description=printable(stage))


def write_text(path: Path, text: str) -> None:
    """Writes to standard output for `-`, else to a file, atomically."""
    if str(path) == "-":
        print(text, end="")
        return
    with writing(path) as file:
        file.write(text.encode("utf-8", "replace"))


def write_json(path: Path, value: Any) -> None:
    """Writes to standard output for `-`, else to a file, atomically."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_figures(args: Any, value: dict[str, Any]) -> None:
    """Writes the figures to --json, with the format's name and version (docs/reference/json.md)."""
    if args.json:
        form = {"format": f"rescore-{args.does.replace('_', '-')}", "version": JSON_VERSION}
        write_json(args.json, {**form, **value, **form})  # first in order, and not overridden by fields of value


def report(args: Any, value: Any, *parts: RenderableType) -> None:
    """Writes the figures to --json, and prints the tables unless the JSON went to standard output. If something else
    does, the tables go to standard error.
    """
    write_figures(args, value)
    if str(args.json) != "-":
        show(*parts, *wrote(args), stderr=bool(piped(args)))


def piped(args: Any) -> list[str]:
    """The options that write to standard output."""
    return [one.option for one in args.outputs if str(one.path) == "-"]


def wrote(args: Any) -> list[str]:
    """A line that names the written files and folders; none if something else goes to standard output."""
    return [f"wrote {', '.join(str(one.path) for one in args.outputs)}"] if args.outputs and not piped(args) else []


def check_places(outputs: Sequence[Output]) -> None:
    """OSError or Misuse if an output cannot be written, or two are written to one place. Called before the work."""
    for number, one in enumerate(outputs):
        check_place(one.path, folder=one.folder)
        for other in outputs[:number]:
            if other.path.resolve() == one.path.resolve() and not is_special(one.path):
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
    nearest = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
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
    """Writes as `writing` does, but stops before the file gets its name. Asking for permissions is not enough: root has
    all of them, on read-only disks too.
    """
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        if path.exists():
            open(path, "ab").close()  # fails for files that may not be replaced either
        with suppress(_Tried), replacing(path) as file:
            file.write(b"\0")
            file.flush()
            raise _Tried
    finally:
        for parent in missing:
            with suppress(OSError):
                parent.rmdir()


def is_special(path: Path) -> bool:
    """Whether it is a pipe or device, which must be written to in place."""
    return path.exists() and not path.is_file()


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under its name when the block ends. Pipes and devices are written in place."""
    if is_special(path):
        with open(path, "wb") as file:
            yield file
        return
    path = path.resolve()  # so that a symbolic link is kept
    with replacing(path) as file:
        yield file


GAPS = (2, 1)  # blanks between columns: the wider gap if all columns fit with it
MAX_HEADER = 24  # longer names are shortened


@dataclass(frozen=True, slots=True)
class Column:
    """A header and one cell per label."""

    header: str
    cells: list[str]

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (short(self.header), *self.cells))

    def repeated(self, times: int) -> Column:
        """A single cell, repeated; columns with several cells are unchanged."""
        return Column(self.header, self.cells * times) if len(self.cells) == 1 else self


def short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= MAX_HEADER else name[: MAX_HEADER - 3] + "..."


def columns_width(header: str, labels: Sequence[str], columns: Sequence[Column], gap: int) -> int:
    """The width of one table with all columns, in characters."""
    return max(cell_len(text) for text in (header, *labels)) + sum(gap + column.width for column in columns)


def column_tables(
    header: str,
    labels: Sequence[str],
    columns: Sequence[Column],
    *,
    width: int,
    bold: Collection[str] = (),
) -> list[Table]:
    """The columns as one or more tables that fit into the width. Each table repeats the labels on the left."""
    header, labels = printable(header), [printable(label) for label in labels]
    gap = next((gap for gap in GAPS if columns_width(header, labels, columns, gap) <= width), GAPS[-1])
    tables, rest = [], list(columns)
    while rest:
        number = max(
            (n for n in range(1, len(rest) + 1) if columns_width(header, labels, rest[:n], gap) <= width), default=1
        )
        tables.append(one_table(header, labels, rest[:number], gap, bold))
        rest = rest[number:]
    return tables


def one_table(header: str, labels: Sequence[str], columns: Sequence[Column], gap: int, bold: Collection[str]) -> Table:
    table = Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    table.add_column(header, overflow="fold")
    for column in columns:
        table.add_column(short(column.header), justify="right", no_wrap=True)
    for row, label in enumerate(labels):
        table.add_row(label, *(column.cells[row] for column in columns), style="bold" if label in bold else None)
    return table
