"""Costs rounded to few values."""
from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 256


def codebook(cost: NDArray[np.float32], bins: int) -> NDArray[np.float32]:
    found = np.unique(cost)
    return found[:: max(1, -(-len(found) // bins))].copy()
