"""Reads search times from a file written by `rescore bench search --json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rescore.decode.bench.paper_latency import TABLE_12_MS, TABLE_13_MS, TABLES, Cell
from rescore.decode.cost.cost_inputs import read_report

ENGINES = 16  # at most
NAME = 80  # characters at most
LONGEST_US = 1e12
FACTS = ("cpu", "cores", "load", "libfst-dev", "pynini")  # of the machine
SETTINGS = ("dump", "lm", "alpha", "lattices", "rounds", "left_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Microseconds per lattice: median and 99th percentile. times_ours: the median divided by ours for the same answer,
    None for our own.
    """

    median_us: float
    p99_us: float
    times_ours: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTimes:
    """Search times for the paper's tables.

    cells   the times of every engine, in one order, by cell of tables 12 and 13
    facts   machine and settings, as text by name
    ngrams  size of the model
    """

    cells: Mapping[Cell, Mapping[str, Times]]
    facts: Mapping[str, str]
    ngrams: int

    @property
    def engines(self) -> tuple[str, ...]:
        return tuple(next(iter(self.cells.values())))


def read_search(path: str | Path) -> SearchTimes:
    """Reads the times. ValueError, with the file's name, unless the report has all cells of both tables."""
    report = read_report(path)
    try:
        cells = _cells([row for row in report["results"] if row["group"] == TABLES and row["run"] == 1])
        facts = {
            name: str(value)[:NAME]
            for part, names in (("machine", FACTS), ("settings", SETTINGS))
            for name in names
            if (value := report[part].get(name)) is not None
        }
        return SearchTimes(
            cells=cells, facts=facts, ngrams=sum(_whole(number, "ngrams") for number in report["settings"]["ngrams"])
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: expected a report of `rescore bench search --json`, got one without {error}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _cells(rows: list[dict[str, Any]]) -> dict[Cell, dict[str, Times]]:
    wanted = {**TABLE_12_MS, **TABLE_13_MS}
    found: dict[Cell, dict[str, Times]] = {}
    for row in rows:
        case = row["case"]
        cell = (
            _whole(case["slots"], "slots"),
            _whole(case["candidates"], "candidates"),
            _whole(case["paths"], "paths"),
        )
        if cell not in wanted or cell in found:
            raise ValueError(
                f"results: expected each cell of tables 12 and 13 once, got {_named(cell)} "
                f"{'twice' if cell in found else 'in addition'}"
            )
        found[cell] = {_name(name): _times(times, cell) for name, times in row["engines"].items()}
    if missing := next((cell for cell in wanted if cell not in found), None):
        raise ValueError(f"results: expected all of tables 12 and 13, got no {_named(missing)}")
    engines = {tuple(own) for own in found.values()}
    if len(engines) > 1 or not 1 <= len(next(iter(engines))) <= ENGINES:
        raise ValueError(
            f"results: expected the same 1 to {ENGINES} engines in all cells, got {sorted(len(own) for own in engines)}"
        )
    return found


def _times(times: dict[str, Any], cell: Cell) -> Times:
    ratio = times.get("times_ours")
    return Times(
        median_us=_positive(times["median_us"], "median_us", cell),
        p99_us=_positive(times["p99_us"], "p99_us", cell),
        times_ours=None if ratio is None else _positive(ratio, "times_ours", cell),
    )


def _positive(value: Any, name: str, cell: Cell) -> float:
    if type(value) not in (int, float) or not 0 < value < LONGEST_US or not math.isfinite(value):
        raise ValueError(
            f"{name} of {_named(cell)}: expected a positive number below {LONGEST_US:g}, got {value!r:.80}"
        )
    return float(value)


def _whole(value: Any, name: str) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise ValueError(f"{name}: expected a whole number, got {value!r:.80}")
    return value


def _name(name: str) -> str:
    if not 1 <= len(name) <= NAME:
        raise ValueError(f"engines: expected names of 1 to {NAME} characters, got {name!r:.80}")
    return name


def _named(cell: Cell) -> str:
    slots, candidates, paths = cell
    return f"{slots} x {candidates}, p = {paths}"
