"""Weights in units of 2^-32 nats, as in the native core (csrc/composition.h): equal sums tie exactly."""

from __future__ import annotations

import triton
import triton.language as tl

IMPOSSIBLE = tl.constexpr((2**63 - 1) // 4)
MAX_WEIGHT = tl.constexpr(float(1 << 19))  # nats
ONE = tl.constexpr(4294967296.0)
ROUNDER = tl.constexpr(1.5 * (1 << 20))  # float64 are 2^-32 apart where this and a weight are added


@triton.jit
def rounded(nats):
    """float64 nats, rounded to the nearest unit, halves to even; +inf beyond MAX_WEIGHT, and of NaN.

    Sums of these are exact up to 2^21.
    """
    return tl.where(tl.abs(nats) <= MAX_WEIGHT, (nats + ROUNDER) - ROUNDER, float("inf"))


@triton.jit
def to_fixed(nats):
    """Rounded float64 nats in units, int64; IMPOSSIBLE of +inf."""
    possible = nats < float("inf")
    return tl.where(possible, (tl.where(possible, nats, 0.0) * ONE).to(tl.int64), IMPOSSIBLE)


@triton.jit
def to_nats(weight):
    """float64."""
    return weight.to(tl.float64) / ONE
