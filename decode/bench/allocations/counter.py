"""The allocator's calls of a search, counted in a process of its own in front of whose allocator
`preload.cc` stands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.sausage import Sausage

SOURCE = Path(__file__).with_name("preload.cc")


class PreloadUnavailable(RuntimeError):
    """The calls cannot be counted here; the message says why."""


def compile_preload(library: Path) -> Path:
    """`library`, compiled from `preload.cc`; PreloadUnavailable without a compiler or on a C library other
    than glibc.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise PreloadUnavailable("no g++ on the path; install g++")
    done = subprocess.run(
        [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-Wl,-z,defs", str(SOURCE), "-o", str(library)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise PreloadUnavailable(
            f"preload.cc is for glibc, and here it does not link: {done.stderr.strip().splitlines()[-1]}"
        )
    return library


def count_allocations(
    library: Path, lm: Path, alpha: float, batch: Sausage, histories: NDArray[np.int32], *, threads: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """How often a call asked for memory: of every call of `bench_calls.CALLS`, the least and the most over the
    lattices.

    Lattices are searched one by one, and `batch` in one call; all had been searched before. Keys: `public`; `again`,
    with the answer's memory reused; `native`; `batch`, reused too.
    """
    given = folder / "lattices.npz"
    np.savez(given, ids=batch.ids, cost=batch.cost, histories=histories)
    command = [
        sys.executable,
        "-m",
        "rescore.decode.bench.allocations.counted",
        str(given),
        str(lm),
        repr(alpha),
        str(threads),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": str(library)})
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)
