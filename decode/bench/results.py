"""The one shape of what every benchmark found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rescore import _core
from rescore.decode.bench.machine import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One question put to several engines.

    group    which rows belong together, as the heading of their table says it
    case     what was asked: names and numbers, such as slots, candidates, paths
    engines  of each engine its figures by name, times in microseconds (`_us`) unless the name says otherwise;
             `times_ours`: how many times our median of the same answer
    run      which of the repetitions of the whole benchmark, from 1
    """

    group: str
    case: Mapping[str, int | float | str]
    engines: Mapping[str, Mapping[str, Any]]
    run: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "run": self.run,
            "case": dict(self.case),
            "engines": {name: dict(own) for name, own in self.engines.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """What a benchmark found: its name, machine and versions, settings, what was checked to be equal before anything
    counted, and the rows.
    """

    bench: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    checked: tuple[str, ...]
    rows: tuple[BenchRow, ...] = field(repr=False)

    def group(self, name: str, run: int = 1) -> list[BenchRow]:
        """The rows of one heading and one run."""
        return [row for row in self.rows if (row.group, row.run) == (name, run)]

    def to_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "checked": list(self.checked),
            "results": [row.to_json() for row in self.rows],
        }


def bench_machine(*packages: str) -> dict[str, Any]:
    """The machine with the versions of packages, and what the core was compiled for (`_core.processor`)."""
    return {**machine(*packages), "core": _core.processor}
