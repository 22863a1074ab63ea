"""The process in which allocations are counted: `python -m rescore.decode.bench.allocations.counted LATTICES.npz LM
ALPHA THREADS`.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rescore.decode.bench.calls import CALLS, native_arguments
from rescore.decode.rescoring.rescorer import Rescorer
from rescore.lattice.sausage import Sausage
from rescore.lm.formats import load

WARM = 3  # warm-up rounds over all lattices


def main(given: str, lm: str, alpha: str, threads: str) -> None:
    arrays = np.load(given)
    batch, histories = Sausage(ids=arrays["ids"], cost=arrays["cost"]), arrays["histories"]
    rescorer = Rescorer(load(Path(lm)), alpha=float(alpha), threads=int(threads))
    single = [(batch[i : i + 1], histories[i : i + 1]) for i in range(batch.batch_size)]
    found: dict[str, dict[str, Any]] = {}
    for name, call in CALLS.items():
        found[name] = {
            "public": counted([partial(call.public, rescorer, *one) for one in single]),
            "again": counted([call.again(rescorer, *one) for one in single]),
            "native": counted([partial(call.native, *native_arguments(rescorer, *one)) for one in single]),
            "batch": counted([call.again(rescorer, batch, histories)]),
        }
    print(json.dumps(found))


def counted(calls: Sequence[Callable[[], object]]) -> dict[str, int]:
    """Returns the minimum and maximum number of allocations per call."""
    allocations = ctypes.CDLL(None).rescore_allocations
    allocations.restype = ctypes.c_long
    for _ in range(WARM):
        for call in calls:
            call()
    counts = []
    for call in calls:
        allocations()  # resets the count
        call()
        counts.append(int(allocations()))
    return {"min": min(counts), "max": max(counts)}


if __name__ == "__main__":
    main(*sys.argv[1:])
