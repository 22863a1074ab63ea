"""Detects continuations that loop. Loops are easy to draft, so they make every drafter look better."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 24
DISTINCT = 8


def is_loop(tokens: Any) -> bool:
    """Whether the last 24 tokens hold fewer than 8 distinct ones; shorter continuations do not count as loops."""
    tokens = np.asarray(tokens)
    return len(tokens) >= WINDOW and len(np.unique(tokens[-WINDOW:])) < DISTINCT


def loop_count(tokens: NDArray, offsets: NDArray) -> int:
    """Number of sequences tokens[offsets[s]:offsets[s + 1]] that loop."""
    return sum(is_loop(tokens[start:end]) for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist()))
