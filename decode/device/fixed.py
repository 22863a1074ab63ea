"""Weights as integers in units of 2^-32 nats, as in the native core (csrc/composition.h): equal sums tie exactly."""

from __future__ import annotations

import triton
import triton.language as tl

IMPOSSIBLE = tl.constexpr((2**63 - 1) // 4)
MAX_WEIGHT = tl.constexpr(float(1 << 24))  # nats
ONE = tl.constexpr(4294967296.0)


@triton.jit
def to_fixed(nats):
    """float64 nats, rounded to the nearest unit, halves to even; IMPOSSIBLE beyond MAX_WEIGHT, and of NaN."""
    possible = tl.abs(nats) <= MAX_WEIGHT
    units = tl.where(possible, nats, 0.0) * ONE
    below = tl.floor(units)
    rest = units - below
    number = below.to(tl.int64)
    up = (rest > 0.5) | ((rest == 0.5) & ((number & 1) == 1))
    return tl.where(possible, number + up.to(tl.int64), IMPOSSIBLE)


@triton.jit
def to_nats(weight):
    """float64."""
    return weight.to(tl.float64) / ONE
