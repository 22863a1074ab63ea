"""Measured time of a pass as a function of its width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassCosts:
    """Seconds of a pass by its width, the tokens that it reads in all rows together.

    tokens   int64 [m], ascending
    seconds  float64 [m], non-decreasing, since a narrow pass can be padded
    """

    tokens: NDArray[np.int64]
    seconds: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.tokens.ndim != 1 or self.tokens.shape != self.seconds.shape or not self.tokens.size:
            raise ValueError(
                f"expected tokens and seconds of equal length, at least 1, got {self.tokens.shape} and "
                f"{self.seconds.shape}"
            )
        if self.tokens[0] < 1 or (np.diff(self.tokens) <= 0).any():
            raise ValueError(f"tokens: expected ascending numbers from 1, got {self.tokens.tolist()}")
        if not (np.isfinite(self.seconds) & (self.seconds > 0)).all():
            raise ValueError(f"seconds: expected finite numbers above 0, got {self.seconds.tolist()}")

    @classmethod
    def of_times(cls, tokens: Sequence[int], seconds: Sequence[float]) -> PassCosts:
        """Makes costs from measured times. A time above that of a wider pass is noise and is lowered to it."""
        times = np.minimum.accumulate(np.asarray(seconds, np.float64)[::-1])[::-1]
        return cls(tokens=np.asarray(tokens, np.int64), seconds=times)

    def at(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Returns the seconds of passes of the given widths: interpolated between measured widths, and extrapolated
        beyond them with the last slope or the overall slope, whichever is steeper (equal times may be noise).

        A narrower pass than any measured takes a proportional share of the narrowest, the least it can take, so drafts
        do not look cheap against plain passes that were never measured.
        """
        tokens = np.asarray(tokens)
        inside = np.interp(tokens, self.tokens, self.seconds) * np.minimum(tokens / self.tokens[0], 1)
        if len(self.tokens) < 2:
            return inside
        slopes = (self.seconds[-1] - self.seconds[[0, -2]]) / (self.tokens[-1] - self.tokens[[0, -2]])
        return inside + slopes.max() * np.maximum(tokens - self.tokens[-1], 0)
