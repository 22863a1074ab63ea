"""The machine and the package versions of a benchmark run."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from rescore.lattice.extras import version


def machine(*packages: str) -> dict[str, object]:
    """Returns processor, cores, memory, load, and the versions of Python and the packages (None: not installed)."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
