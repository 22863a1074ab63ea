"""The n smallest of many weights in memory, ties to the earlier ones: by bisection, since counting in a block is cheap.

Each function starts with a barrier: its input was written by other threads of the same program.
"""

from __future__ import annotations

import triton
import triton.language as tl

from rescore.decode.device.fixed import IMPOSSIBLE


@triton.jit
def count_upto(left, left_size, right, right_size, most, BLOCK: tl.constexpr):
    """How many weights int64 of two lists are at most `most`. One reduction, since reductions dominate the time."""
    # [BLOCK] int32
    counts = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, tl.maximum(left_size, right_size), BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        counts += (tl.load(left + i, mask=i < left_size, other=IMPOSSIBLE) <= most).to(tl.int32)
        counts += (tl.load(right + i, mask=i < right_size, other=IMPOSSIBLE) <= most).to(tl.int32)
    return tl.sum(counts)


@triton.jit
def span(left, left_size, right, right_size, BLOCK: tl.constexpr):
    """The least and the greatest possible weight of two lists; IMPOSSIBLE and -IMPOSSIBLE if there is none."""
    # [BLOCK] int64
    least, most = tl.full((BLOCK,), IMPOSSIBLE, tl.int64), tl.full((BLOCK,), -IMPOSSIBLE, tl.int64)
    for first in range(0, tl.maximum(left_size, right_size), BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        # [BLOCK] int64
        a = tl.load(left + i, mask=i < left_size, other=IMPOSSIBLE)
        b = tl.load(right + i, mask=i < right_size, other=IMPOSSIBLE)
        least = tl.minimum(least, tl.minimum(a, b))
        most = tl.maximum(
            most, tl.maximum(tl.where(a < IMPOSSIBLE, a, -IMPOSSIBLE), tl.where(b < IMPOSSIBLE, b, -IMPOSSIBLE))
        )
    return tl.min(least), tl.max(most)


@triton.jit
def threshold(left, left_size, right, right_size, n, BLOCK: tl.constexpr):
    """The n-th smallest of two lists of weights, or the greatest possible one if there are fewer.

    Bisection stops at any weight that exactly n do not exceed: the greatest of these is not needed.
    """
    least, most = span(left, left_size, right, right_size, BLOCK)
    low = least - 1  # fewer than n are at most `low`; if more than n are possible, at least n are at most `most`
    count = count_upto(left, left_size, right, right_size, most, BLOCK)
    while (count > n) & (most - low > 1):
        middle = low + (most - low) // 2
        here = count_upto(left, left_size, right, right_size, middle, BLOCK)
        low = tl.where(here < n, middle, low)
        most = tl.where(here < n, most, middle)
        count = tl.where(here < n, count, here)
    return most


@triton.jit
def choose(weights, size, most, ties, chosen, BLOCK: tl.constexpr):
    """Writes the indices of the weights below `most`, and of the first `ties` equal to it, to `chosen`; returns their
    number.
    """
    found = 0
    for first in range(0, size, BLOCK):
        # [BLOCK] int32
        i = first + tl.arange(0, BLOCK)
        # [BLOCK] int64
        weight = tl.load(weights + i, mask=i < size, other=IMPOSSIBLE)
        # [BLOCK] int32
        equal = ((weight == most) & (weight < IMPOSSIBLE)).to(tl.int32)
        # [BLOCK] bool
        kept = (weight < most) | ((equal > 0) & (tl.cumsum(equal, 0) <= ties))
        ties = tl.maximum(ties - tl.sum(equal), 0)
        # [BLOCK] int32
        place = found + tl.cumsum(kept.to(tl.int32), 0) - 1
        tl.store(chosen + place, i, mask=kept)
        found += tl.sum(kept.to(tl.int32))
    return found
