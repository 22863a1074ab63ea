"""What verbs print and write: tables, progress bars, JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PIPE_WIDTH = 120  # columns of a table that goes to a file


def console() -> Console:
    out = Console()
    return out if out.is_terminal else Console(width=PIPE_WIDTH)


def progress_bar() -> Progress:
    """A bar on standard error, only where somebody can see it."""
    screen = Console(stderr=True)
    return Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=screen,
                    transient=True, disable=not screen.is_terminal)


def write_json(path: Path, value: Any) -> None:
    """To standard output for `-`, else to a temporary name that is renamed."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
