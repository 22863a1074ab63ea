"""Progress of a build: one line per stage on standard error, if that is a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rescore.decode.cli.actions.output import Screen
from rescore.decode.cli.arguments import printable


class BuildProgress:
    """Called with the stage, the bytes done and in total, and the number of items and their unit."""

    def __init__(self) -> None:
        screen = Screen(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[words]}", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=screen,
            transient=True,
            disable=not screen.is_terminal,
        )
        self._stage, self._task, self._before = "", TaskID(0), 0

    def __enter__(self) -> BuildProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int, items: int, unit: str) -> None:
        if stage != self._stage:
            self._finish()
            self._stage, self._task, self._before = stage, self._bar.add_task(f"{stage:8}", total=None, words=""), items
        self._bar.update(self._task, completed=done, total=total or None, words=printable(self._words(items, unit)))

    def _words(self, items: int, unit: str) -> str:
        """The number of items and their rate; items of an interrupted earlier run do not count for the rate."""
        if not items:
            return unit
        seconds = self._bar.tasks[-1].elapsed or 0.0
        rate = f", {(items - self._before) / seconds:,.0f}/s" if seconds > 0.1 else ""
        return f"{items:,} {unit}{rate}"

    def _finish(self) -> None:
        if self._stage:
            task = self._bar.tasks[-1]
            self._bar.update(self._task, completed=task.total or 1, total=task.total or 1)
