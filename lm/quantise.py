"""Costs rounded to few values, for models of half the size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 256
_STEPS = 1 << 16  # of the histogram: some 0.0003 nats each


def codebook(cost: NDArray[np.float32], bins: int) -> NDArray[np.float32]:
    """At most `bins` values to round costs [n] to, float32 [bins], ascending and distinct; 0 is kept if it occurs.

    Half of the values are evenly spaced, so that no cost is off by more than a 1/256 of the range; the density of the
    others is the cube root of that of the costs, which for many bins makes the mean squared error in nats the least
    (Panter and Dite, Quantization distortion in pulse-count modulation, 1951). With bins of equal population unlikely
    tokens, whose costs are rare, would be off by nats.
    """
    zero = bool((cost == 0).any())
    cost = cost[cost != 0]
    if not len(cost):
        return np.zeros(1, np.float32)
    found = np.unique(cost[:: max(1, len(cost) >> 16)])
    if len(found) <= bins - zero and len(found := np.unique(cost)) <= bins - zero:
        return np.union1d(found, np.zeros(int(zero), np.float32)).astype(np.float32)
    low, high = float(cost.min()), float(cost.max())
    count, edge = np.histogram(cost, _STEPS, (low, high))
    smooth = np.convolve(count, np.full(129, 1 / 129), mode="same")  # as costs come in heaps
    dense = np.cbrt(np.maximum(smooth, 0))
    place = np.cumsum(dense / dense.sum() + 1 / _STEPS) / 2
    which = np.minimum(place * (bins - zero), bins - zero - 1).astype(np.int64)
    middle = (edge[1:] + edge[:-1]) / 2
    weight = np.bincount(which, count, bins - zero)
    book = np.bincount(which, count * middle, bins - zero)[weight > 0] / weight[weight > 0]
    return np.unique(np.append(book, np.zeros(int(zero))).astype(np.float32))
