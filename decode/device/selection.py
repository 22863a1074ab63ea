"""The n least of many weights in memory, ties to those that come first: by bisection, since one count of a block is cheap.

A barrier stands before each of these: what they read was written by the same program, by other threads of it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rescore.decode.device.fixed import IMPOSSIBLE


@triton.jit
def count_upto(weights, size, most, BLOCK: tl.constexpr):
    """How many of the weights int64 [size] are at most `most`."""
    count = 0
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        count += tl.sum((tl.load(weights + i, mask=i < size, other=IMPOSSIBLE) <= most).to(tl.int32))
    return count


@triton.jit
def span(weights, size, least, most, BLOCK: tl.constexpr):
    """`least` and `most` widened to the weights that are possible."""
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + i, mask=i < size, other=IMPOSSIBLE)
        least = tl.minimum(least, tl.min(weight))
        most = tl.maximum(most, tl.max(tl.where(weight < IMPOSSIBLE, weight, -IMPOSSIBLE)))
    return least, most


@triton.jit
def threshold(left, left_size, right, right_size, n, BLOCK: tl.constexpr):
    """The n-th least of two lists of weights, or the greatest possible one if there are fewer.

    Halving stops as soon as a weight is met that exactly n are not above: then the greatest of them need not be known.
    """
    none = tl.full((), IMPOSSIBLE, tl.int64)
    least, most = span(left, left_size, none, -none, BLOCK)
    least, most = span(right, right_size, least, most, BLOCK)
    low = least - 1  # fewer than n are at most `low`; if more than n are possible, at least n are at most `most`
    count = count_upto(left, left_size, most, BLOCK) + count_upto(right, right_size, most, BLOCK)
    while (count > n) & (most - low > 1):
        middle = low + (most - low) // 2
        here = count_upto(left, left_size, middle, BLOCK) + count_upto(right, right_size, middle, BLOCK)
        low = tl.where(here < n, middle, low)
        most = tl.where(here < n, most, middle)
        count = tl.where(here < n, count, here)
    return most


@triton.jit
def choose(weights, size, most, ties, chosen, BLOCK: tl.constexpr):
    """Writes the places of the weights below `most`, and of the first `ties` that equal it, to `chosen`; how many they are."""
    found = 0
    for first in range(0, size, BLOCK):
        i = first + tl.arange(0, BLOCK)
        weight = tl.load(weights + i, mask=i < size, other=IMPOSSIBLE)
        equal = ((weight == most) & (weight < IMPOSSIBLE)).to(tl.int32)
        kept = (weight < most) | ((equal > 0) & (tl.cumsum(equal, 0) <= ties))
        ties = tl.maximum(ties - tl.sum(equal), 0)
        place = found + tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(chosen + place, i, mask=kept)
        found += tl.sum(kept.to(tl.int32))
    return found
