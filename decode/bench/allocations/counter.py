"""Counts the allocations of a search in a separate process, with `preload.cc` in front of its allocator."""

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
    """Allocations cannot be counted on this machine; the message says why."""


def compile_preload(library: Path) -> Path:
    """Compiles `preload.cc` to `library`; PreloadUnavailable without a compiler or without glibc."""
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
            f"preload.cc needs glibc and does not link here: {done.stderr.strip().splitlines()[-1]}"
        )
    return library


def count_allocations(
    library: Path, lm: Path, alpha: float, batch: Sausage, histories: NDArray[np.int32], *, threads: int, folder: Path
) -> dict[str, dict[str, Any]]:
    """Returns the minimum and maximum number of allocations per call, for every call of `calls.CALLS`, after warm-up.

    Keys: `public`; `again`, with reused output arrays; `native`, all one lattice at a time; `batch`, all lattices in
    one call with reused output arrays.
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
