"""Tests counts against a distribution."""

from __future__ import annotations

import numpy as np
import torch


def g_test(observed: np.ndarray, expected: np.ndarray) -> float:
    """The p-value of counts, given expected counts with the same total; cells with expectation 0 must be empty."""
    assert not observed[expected == 0].any()
    observed, expected = observed[expected > 0], expected[expected > 0]
    seen = observed > 0
    g = 2 * (observed[seen] * np.log(observed[seen] / expected[seen])).sum()
    # The upper tail of chi squared.
    return float(
        torch.special.gammaincc(
            torch.tensor((len(expected) - 1) / 2, dtype=torch.float64), torch.tensor(g / 2, dtype=torch.float64)
        )
    )
