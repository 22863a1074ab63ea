"""Numbers as table cells, with significant digits and a sort key."""

from __future__ import annotations

from collections.abc import Sequence

from rescore.decode.report.content import Cell

NONE = Cell("–", None)


def text(content: str) -> Cell:
    return Cell(content)


def count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", float(value))


def decimal(value: float | None, digits: int = 2, interval: tuple[float, float] | None = None) -> Cell:
    if value is None:
        return NONE
    note = _range(*interval, digits) if interval else ""
    return Cell(f"{value:.{digits}f}", float(value), note)


def percent(value: float | None, digits: int = 0, interval: tuple[float, float] | None = None) -> Cell:
    if value is None:
        return NONE
    note = _range(100 * interval[0], 100 * interval[1], digits) + "%" if interval else ""
    return Cell(f"{100 * value:.{digits}f}%", float(value), note)


def p_value(value: float | None) -> Cell:
    if value is None:
        return NONE
    return Cell("< 0.001" if value < 0.001 else f"{value:.3f}", value)


def _range(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f}{' to ' if low < 0 else '–'}{high:.{digits}f}"


def interval(pair: Sequence[float | None] | None) -> tuple[float, float] | None:
    """The interval as (low, high); None if it is missing."""
    if pair is None or pair[0] is None or pair[1] is None:
        return None
    return pair[0], pair[1]
