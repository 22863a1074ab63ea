"""The form of a benchmark's results, and the machine that they are of."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rescore import _core
from rescore.lattice.extras import version


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One case measured with several engines.

    group    heading of the table that the row belongs to
    case     parameters of the case, such as the batch size
    engines  figures by name for each engine, times in microseconds (`_us`) unless the name says otherwise;
             `times_ours`: the engine's median divided by ours for the same answer
    """

    group: str
    case: dict[str, int | float | str]
    engines: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """The report of a benchmark: its name, machine and versions, settings, equality checks that passed, and rows."""

    bench: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    checked: tuple[str, ...]
    results: tuple[BenchRow, ...] = field(repr=False)


def machine(*packages: str) -> dict[str, Any]:
    """Returns processor, cores, memory, load, the versions of Python and the packages (None: not installed), and the
    core's compilation target (`_core.processor`).
    """
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(models, platform.processor()),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
        "core": _core.processor,
    }
