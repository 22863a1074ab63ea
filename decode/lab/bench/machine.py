"""The machine that a benchmark ran on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from rescore import _core
from rescore.lattice.extras import version


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
