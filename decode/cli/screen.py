"""Terminals: tables as lines that fit, and progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment

from rescore.decode.cli import output
from rescore.decode.cli.options import ReportedArgs, outputs
from rescore.decode.cli.output import Column, Facts, Part, Result, TextTable
from rescore.decode.cli.values import printable, printable_text
from rescore.lattice.short_repr import readable

PIPE_WIDTH = 120  # width of tables without a terminal; lines are not broken there
UNBROKEN = 10_000
SPEED_SECONDS = 600  # the time left is estimated from so many seconds: batches may take a minute each
GAPS = (2, 1)  # blanks between columns: the wider gap if all columns fit with it
MAX_HEADER = 24  # longer names are shortened
PROSE = 24  # characters that a column of prose has at least

BuildProgress = Callable[[str, int, int, int, str], None]
"""Takes the stage, the bytes done and in total, and the number of items and their unit."""


class Screen(Console):
    """A console that interprets no markup and escapes control characters in text."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable_text(segment.text))


def show(*parts: Part, stderr: bool = False) -> None:
    """Prints tables and lines, without trailing blanks."""
    out, width = Screen(stderr=stderr), PIPE_WIDTH
    if out.is_terminal:
        width = out.width
    else:
        out = Screen(width=UNBROKEN, stderr=stderr)
    with out.capture() as captured:
        for part in parts:
            for line in laid_out(part, width):
                out.print(line, soft_wrap=isinstance(line, str))
    text = "\n".join(line.rstrip() for line in captured.get().split("\n"))
    print(text, end="", file=sys.stderr if stderr else None)


def tell(verb: str, options: ReportedArgs, result: Result) -> None:
    """Writes the figures to --json, with the format's name and version (docs/reference/json.md); prints the rest."""
    if options.json and result.figures is not None:
        form = {"format": f"rescore-{verb.replace(' ', '-')}", "version": output.JSON_VERSION}
        output.write_json(options.json, {**form, **result.figures, **form})  # first in order, and not overridden
    written = list(outputs(type(options), options))
    piped = any(str(one.path) == "-" for one in written)
    names = [str(one.path) for one in written if not (one.folder and result.listed)]
    wrote = [f"wrote {', '.join(names)}"] if names and not piped else []
    parts = () if str(options.json) == "-" else result.parts
    show(*parts, *wrote, stderr=piped or result.beside)
    if result.failed:
        print(f"rescore: {result.failed}", file=sys.stderr)


def laid_out(part: Part, width: int) -> Iterator[RenderableType]:
    """What rich prints for a part, in no more characters than `width`."""
    if isinstance(part, TextTable):
        if part.title:
            yield from ("", part.title)
        yield from _tables(part, width)
    elif isinstance(part, Facts):
        yield _facts(part)
    else:
        yield part


def _facts(part: Facts) -> rich_table.Table:
    table = rich_table.Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in part.rows:
        table.add_row(printable(name), printable(readable(value)))
    return table


def _tables(part: TextTable, width: int) -> Iterator[rich_table.Table]:
    """The columns as one or more tables that fit into the width. Each table repeats the labels on the left."""
    gap = next((gap for gap in GAPS if _width(part, part.columns, gap) <= width), GAPS[-1])
    rest = list(part.columns)
    while rest:
        fitting = (n for n in range(1, len(rest) + 1) if _width(part, rest[:n], gap) <= width)
        number = max(fitting, default=1)
        yield _one_table(part, rest[:number], gap)
        rest = rest[number:]


def _width(part: TextTable, columns: Sequence[Column], gap: int) -> int:
    """The width of one table with these columns, in characters."""

    def of(column: Column) -> int:
        needed = max(cell_len(text) for text in (_short(column.header), *column.cells))
        return min(needed, PROSE) if column.prose else needed

    return max(cell_len(printable(text)) for text in (part.header, *part.labels)) + sum(
        gap + of(one) for one in columns
    )


def _one_table(part: TextTable, columns: Sequence[Column], gap: int) -> rich_table.Table:
    table = rich_table.Table(box=None, header_style="bold", padding=(0, gap, 0, 0), pad_edge=False)
    table.add_column(printable(part.header), overflow="fold")
    for column in columns:
        how: dict[str, Any] = {"overflow": "fold"} if column.prose else {"justify": "right", "no_wrap": True}
        table.add_column(_short(column.header), **how)
    for row, label in enumerate(part.labels):
        cells = (printable(column.cells[row]) for column in columns)
        table.add_row(printable(label), *cells, style="bold" if label in part.bold else None)
    return table


def _short(name: str) -> str:
    name = printable(name)
    return name if len(name) <= MAX_HEADER else name[: MAX_HEADER - 3] + "..."


def _progress(*columns: ProgressColumn, **options: Any) -> Progress:
    """Progress on standard error, if that is a terminal."""
    screen = Screen(stderr=True)
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal, **options)


def _text(field: str, **options: Any) -> TextColumn:
    return TextColumn(f"{{task.{field}}}", markup=False, **options)


def progress_bar() -> Progress:
    """A bar of things done, of a known number. The description shrinks first."""
    what = _text("description", table_column=rich_table.Column(ratio=1, no_wrap=True))
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return _progress(*columns, expand=True, speed_estimate_period=SPEED_SECONDS)


@contextmanager
def stages() -> Iterator[Callable[[str], None]]:
    """A spinner for work of unknown length. Yields a function that sets its text."""
    with _progress(SpinnerColumn(), _text("description"), TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=None)
        yield lambda stage: bar.update(task, description=printable(stage))


@contextmanager
def build_progress() -> Iterator[BuildProgress]:
    """A line for each stage of a build or of training."""
    words = (TaskProgressColumn(), _text("fields[words]"), TimeElapsedColumn(), TimeRemainingColumn())
    with _progress(_text("description"), BarColumn(bar_width=20), *words) as bar:
        tasks: dict[str, TaskID] = {}
        first: dict[str, int] = {}  # items of an interrupted earlier run do not count for the rate

        def advance(stage: str, done: int, total: int, items: int, unit: str) -> None:
            if stage not in tasks:
                for task in bar.tasks[-1:]:  # the stage before has ended
                    bar.update(task.id, completed=task.total or 1, total=task.total or 1)
                tasks[stage], first[stage] = bar.add_task(f"{stage:8}", total=None, words=""), items
            seconds = bar.tasks[-1].elapsed or 0.0
            rate = f", {(items - first[stage]) / seconds:,.0f}/s" if seconds > 0.1 else ""
            told = f"{items:,} {unit}{rate}" if items else unit
            bar.update(tasks[stage], completed=done, total=total or None, words=printable(told))

        yield advance
