"""Weights in units of 2^-32 nats, as in the native core (csrc/weight.h), so that equal sums tie exactly."""

from __future__ import annotations

import triton
import triton.language as tl

from rescore import _core

IMPOSSIBLE = tl.constexpr(_core.IMPOSSIBLE)
MAX_WEIGHT = tl.constexpr(_core.MAX_WEIGHT)  # nats
ONE = tl.constexpr(_core.FIXED_ONE)
ROUNDER = tl.constexpr(1.5 * (1 << 20))  # float64 of this size are 2^-32 apart


@triton.jit
def rounded(nats):
    """Rounds float64 nats to the nearest unit, halves to even; +inf beyond MAX_WEIGHT and for NaN.

    Sums of the results are exact up to 2^21.
    """
    return tl.where(tl.abs(nats) <= MAX_WEIGHT, (nats + ROUNDER) - ROUNDER, float("inf"))


@triton.jit
def to_fixed(nats):
    """Converts rounded float64 nats to units, int64; +inf to IMPOSSIBLE."""
    possible = nats < float("inf")
    return tl.where(possible, (tl.where(possible, nats, 0.0) * ONE).to(tl.int64), IMPOSSIBLE)


@triton.jit
def to_nats(weight):
    """Converts units to nats, float64."""
    return weight.to(tl.float64) / ONE
