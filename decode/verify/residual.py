"""The residual of speculative sampling: the target less the drafter's share."""

from __future__ import annotations

from rescore.decode.verify.sampling import Array


def residual(p: Array, q: Array, scale: float = 1.0) -> Array:
    """Distribution float64 [V]: max(scale p - q, 0), normalised; p, q float64 [V] (Leviathan et al. 2023, section 2.3).

    Returns p if the residual has no mass, which means scale p <= q everywhere. An exact rule stops there with
    probability 0, so only rounding leads here, and p is then off by rounding alone.
    """
    left = (scale * p - q).clip(0)
    mass = float(left.sum())
    return left / mass if mass > 0 else p
