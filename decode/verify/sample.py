"""Sampling a token with a given uniform number."""

from __future__ import annotations

from rescore.decode.verify.checked import Array


def sample(weights: Array, uniform: Array | float) -> Array:
    """Ids int64 [...]: per row the first id whose cumulative weight exceeds uniform * the row's sum.

    weights float64 [..., V], at least 0, not all 0; uniform [...] in [0, 1), multiples of 2^-53 or coarser, as every
    generator makes them. The product then stays below the sum in float64 too, so no token of weight 0 is drawn.
    """
    cumulative = weights.cumsum(-1)
    target = uniform * cumulative[..., -1]
    return (cumulative <= target[..., None]).sum(-1)
