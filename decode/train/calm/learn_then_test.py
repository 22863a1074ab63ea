"""Finds the smallest threshold whose risk is bounded with confidence: fixed-sequence testing of Learn then Test.

Angelopoulos et al. 2021 (arXiv 2110.01052), as used by Schuster et al. 2022 (arXiv 2207.07061), section 4. The input is
losses in [0, 1] of n texts, exchangeable with future ones. For each threshold, in decreasing order, the hypothesis "its
risk exceeds delta" is tested at level epsilon; testing stops at the first hypothesis that is not rejected. The order
does not depend on the losses, so each test may use the full level. Then

    P(risk of the returned threshold > delta) <= epsilon,  over the draw of the n texts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tested:
    """The test of one threshold: the mean of its losses, and the p-value of "its risk exceeds delta"."""

    threshold: float
    risk: float
    p_value: float
    valid: bool


def fixed_sequence(
    thresholds: Iterable[float], losses_of: Callable[[float], ArrayLike], *, delta: float, epsilon: float
) -> list[Tested]:
    """Tests thresholds in decreasing order; only the last test may be invalid.

    losses_of: returns the losses [n] at a threshold. ValueError for losses outside [0, 1] and for thresholds that do
    not decrease.
    """
    for name, value in (("delta", delta), ("epsilon", epsilon)):
        if not 0 < value < 1:
            raise ValueError(f"{name}: expected a number between 0 and 1, got {value}")
    tested: list[Tested] = []
    for threshold in thresholds:
        if tested and threshold >= tested[-1].threshold:
            raise ValueError(f"thresholds: expected decreasing values, got {threshold} after {tested[-1].threshold}")
        losses = _checked(losses_of(threshold))
        risk = float(losses.mean())
        p_value = hoeffding_bentkus(risk, len(losses), delta)
        tested.append(Tested(threshold=threshold, risk=risk, p_value=p_value, valid=p_value <= epsilon))
        if not tested[-1].valid:
            break
    return tested


def least_valid(tested: Iterable[Tested]) -> Tested | None:
    """Returns the last valid test; None if there is none, so that only the full model meets the guarantee."""
    return next((one for one in reversed(list(tested)) if one.valid), None)


def hoeffding(risk: float, n: int, delta: float) -> float:
    """Hoeffding's bound on P(mean of n losses <= risk | delta): exp(-n kl(risk, delta)), 1 if risk >= delta."""
    if risk >= delta:
        return 1.0
    kl = (1 - risk) * math.log((1 - risk) / (1 - delta)) + (risk * math.log(risk / delta) if risk > 0 else 0.0)
    return math.exp(-n * kl)


def hoeffding_bentkus(risk: float, n: int, delta: float) -> float:
    """The smaller of Hoeffding's p-value and Bentkus', e P(Binomial(n, delta) <= ceil(n risk)), at most 1.

    Valid for any losses in [0, 1] (Bates et al. 2021, arXiv 2101.02703, proposition 7).
    """
    return min(hoeffding(risk, n, delta), math.e * _binomial_at_most(math.ceil(n * risk - 1e-9), n, delta))


def _binomial_at_most(k: int, n: int, p: float) -> float:
    """P(Binomial(n, p) <= k)."""
    terms = (
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    )
    return min(1.0, math.fsum(map(math.exp, terms)))


def _checked(losses: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(losses, np.float64)
    if values.ndim != 1 or not len(values) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"losses: expected numbers from 0 to 1 of at least one text, got shape {list(values.shape)}")
    return values
