"""Tables of benchmarks as Markdown, printed row by row."""

from __future__ import annotations

from collections.abc import Iterable


def show_header(first: str, columns: Iterable[str]) -> None:
    columns = list(columns)
    print(f"| {first} | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")


def show_row(name: str, values: Iterable[object]) -> None:
    """A row of a table; floats have two decimals."""
    cells = (f"{value:.2f}" if isinstance(value, float) else str(value) for value in values)
    print(f"| {name} | {' | '.join(cells)} |", flush=True)
