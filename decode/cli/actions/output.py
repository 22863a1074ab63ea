"""What verbs print and write: tables, progress bars, JSON, files that appear whole."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

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
from rich.table import Column, Table

from rescore.decode.cli.arguments import Misuse, harmless, printable
from rescore.lm.atomic import replacing

PIPE_WIDTH = 120  # columns that tables are laid out for where there is no terminal; lines are not broken there
UNBROKEN = 10_000
JSON_VERSION = 1  # of what --json writes: another one where a field goes, or means another thing
STREAMS = ("out", "arpa", "per_line", "per_token")  # options whose value may be - for standard output


class Screen(Console):
    """A console that takes no text for markup, and spells out in it what would steer a terminal."""

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
    """Columns that a table should keep to."""
    out = console()
    return out.width if out.is_terminal else PIPE_WIDTH


def show(*parts: RenderableType, stderr: bool = False) -> None:
    """Print tables and lines, without blanks at the ends of lines where there is no terminal."""
    screen = console(stderr=stderr)
    with screen.capture() as captured:
        for part in parts:
            screen.print(part, soft_wrap=isinstance(part, str))
    print("\n".join(line.rstrip() for line in captured.get().split("\n")), end="", file=sys.stderr if stderr else None)


def note(text: str) -> None:
    """Something to know, on standard error, whatever else is asked for."""
    print(f"note: {printable(text)}", file=sys.stderr)


def facts(rows: list[tuple[str, Any]]) -> Table:
    """Names and values, a line each."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(printable(name), printable(text(value)))
    return table


def text(value: Any) -> str:
    """A value as a person reads it: yes and no, thousands, at most six digits after the point."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def progress_bar() -> Progress:
    """A bar on standard error, only where somebody can see it."""
    screen = Screen(stderr=True)
    # Gives way to the figures.
    what = TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True))
    return Progress(
        what,
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        expand=True,
        transient=True,
        disable=not screen.is_terminal,
    )


@contextmanager
def stages() -> Iterator[Any]:
    """What long work without a known end is at: call it with a text; shown on standard error, only to a terminal."""
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


def write_json(path: Path, value: Any) -> None:
    """To standard output for `-`, else to a file that appears whole."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if str(path) == "-":
        print(text, end="")
        return
    with writing(path) as file:
        file.write(text.encode())


def write_figures(args: Any, value: dict[str, Any]) -> None:
    """Writes figures as JSON where --json asks, with the format's name and version (docs/reference/json.md)."""
    if args.json:
        form = {"format": f"rescore-{args.does.replace('_', '-')}", "version": JSON_VERSION}
        write_json(args.json, {**form, **value, **form})  # first, and in place of those of a file that is shown


def report(args: Any, value: Any, *parts: RenderableType) -> None:
    """The figures as JSON if --json asks for them, and as tables unless they went to standard output; tables give way
    to what else is written there, and go to standard error.
    """
    write_figures(args, value)
    if str(args.json) != "-":
        show(*parts, stderr=bool(piped(args)))


def piped(args: Any) -> list[str]:
    """The options that write a model or rows to standard output."""
    return [f"--{name.replace('_', '-')}" for name in STREAMS if str(getattr(args, name, None)) == "-"]


def check_streams(args: Any) -> None:
    """Misuse if two outputs are to go to standard output."""
    names = piped(args) + (["--json"] if str(args.json) == "-" else [])
    if len(names) > 1:
        raise Misuse(f"expected one output at most on standard output (-), got {' and '.join(names)}")


def check_place(path: Path) -> None:
    """OSError or Misuse if a file cannot be written there: found before the work, not after it."""
    if str(path) == "-":
        return
    if path.is_dir():
        raise Misuse(f"{path}: expected the name of a file to write, got that of a folder")
    folder = next((folder for folder in path.absolute().parents if folder.exists()), Path("/"))
    if not folder.is_dir():
        raise Misuse(f"{path}: cannot be written, since {folder} is not a folder")
    if not os.access(folder if not is_special(path) else path, os.W_OK):
        raise PermissionError(f"{path}: no permission to write in {folder}; name another folder")


def is_special(path: Path) -> bool:
    """Whether it is a pipe or device, which is written to and not replaced."""
    return path.exists() and not path.is_file()


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes its name when the block ends, its folder made where missing; a pipe or
    device as it is.
    """
    if is_special(path):
        with open(path, "wb") as file:
            yield file
        return
    path = path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        yield file
