"""The result format shared by all benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rescore import _core
from rescore.decode.bench.machine import machine


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One case measured with several engines.

    group    heading of the table that the row belongs to
    case     parameters of the case, such as the batch size
    engines  figures by name for each engine, times in microseconds (`_us`) unless the name says otherwise;
             `times_ours`: the engine's median divided by ours for the same answer
    """

    group: str
    case: Mapping[str, int | float | str]
    engines: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "case": dict(self.case),
            "engines": {name: dict(own) for name, own in self.engines.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """The report of a benchmark: its name, machine and versions, settings, equality checks that passed, and rows."""

    bench: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    checked: tuple[str, ...]
    rows: tuple[BenchRow, ...] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        return {
            "bench": self.bench,
            "machine": dict(self.machine),
            "settings": dict(self.settings),
            "checked": list(self.checked),
            "results": [row.to_json() for row in self.rows],
        }


def bench_machine(*packages: str) -> dict[str, Any]:
    """Returns the machine, the versions of packages, and the core's compilation target (`_core.processor`)."""
    return {**machine(*packages), "core": _core.processor}
