"""What is left of the target once the drafter's share is taken out."""

from __future__ import annotations

from rescore.decode.verify.checked import Array


def residual(p: Array, q: Array, scale: float = 1.0) -> Array:
    """Distribution float64 [V]: max(scale p - q, 0), normalised; p, q float64 [V] (Leviathan et al. 2023, section 2.3).

    Without mass it is p itself. That happens only where scale p <= q everywhere; there an exact rule stops with
    probability 0, so only rounding can ask for what follows, and p is then the law that is off by rounding alone.
    """
    left = (scale * p - q).clip(0)
    mass = float(left.sum())
    return left / mass if mass > 0 else p
