"""The risks that calibration bounds: dissimilarity between a text and the model's own.

Schuster et al. 2022 (arXiv 2207.07061), section 4, textual consistency: compares the early-exit text with the full
model's text, so no reference is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rouge_l_risk(text: NDArray[np.integer], full: NDArray[np.integer]) -> float:
    """Returns 1 - ROUGE-L (F1 of the longest common subsequence of tokens), in [0, 1]; 0 for two empty texts."""
    if not len(text) and not len(full):
        return 0.0
    return 1 - 2 * _longest_common(text, full) / (len(text) + len(full))


def token_risk(text: NDArray[np.integer], full: NDArray[np.integer]) -> float:
    """Returns the share of positions of the longer text whose tokens differ, in [0, 1]. An omitted token shifts all
    later positions.
    """
    longest = max(len(text), len(full))
    if not longest:
        return 0.0
    same = min(len(text), len(full))
    return 1 - int((text[:same] == full[:same]).sum()) / longest


RISKS = {"rouge-l": rouge_l_risk, "tokens": token_risk}


def _longest_common(left: NDArray[np.integer], right: NDArray[np.integer]) -> int:
    """Returns the length of the longest common subsequence, by dynamic programming, one row per token."""
    row = np.zeros(len(right) + 1, np.int64)
    for token in left:
        longer = np.where(right == token, row[:-1] + 1, row[1:])
        row[1:] = np.maximum.accumulate(np.maximum(longer, row[1:]))
    return int(row[-1])
