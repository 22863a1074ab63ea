"""Codebooks for quantised costs, which halve the size of a model."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BINS = 256
_STEPS = 1 << 16  # of the histogram, about 0.0003 nats each


def codebook(cost: NDArray[np.float32], bins: int) -> NDArray[np.float32]:
    """The codebook of costs [n]: at most `bins` values, float32, ascending and distinct; 0 is kept if it occurs.

    Half of the values are evenly spaced, so that no cost is off by more than 1/256 of the range. The density of the
    others is proportional to the cube root of the density of the costs, which for many bins minimises the mean squared
    error in nats (Panter and Dite, Quantization distortion in pulse-count modulation, 1951). Bins of equal population
    would leave errors of several nats for unlikely tokens, whose costs are rare.
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
    smooth = np.convolve(count, np.full(129, 1 / 129), mode="same")  # since costs cluster
    dense = np.cbrt(np.maximum(smooth, 0))
    place = np.cumsum(dense / dense.sum() + 1 / _STEPS) / 2
    which = np.minimum(place * (bins - zero), bins - zero - 1).astype(np.int64)
    middle = (edge[1:] + edge[:-1]) / 2
    weight = np.bincount(which, count, bins - zero)
    book = np.bincount(which, count * middle, bins - zero)[weight > 0] / weight[weight > 0]
    return np.unique(np.append(book, np.zeros(int(zero))).astype(np.float32))
