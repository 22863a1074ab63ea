"""How many times as fast drafts make decoding, with the uncertainty of the measurement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ENOUGH = 1.05  # a ratio without an interval counts as a difference from here on
NARROW = 1.1  # rounds end once the interval's ends differ by this factor
FEWEST, MOST = 3, 7  # rounds
LONGEST_S = 20.0  # after which no round beyond the fewest begins
# The 0.975 quantiles of Student's t with 1, 2, .. degrees of freedom; more take the last, which is a little wide.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True)
class Speedup:
    """Tokens per second with drafts, in times of plain decoding.

    ratios: one for each round, in which both were timed one after the other, so that a machine that slows down or
    recovers changes both. A single ratio may be an estimate and has no interval.
    """

    ratios: tuple[float, ...]

    @property
    def times(self) -> float:
        """The geometric mean of the rounds."""
        return math.exp(np.log(self.ratios).mean())

    @property
    def middle(self) -> int:
        """The round of the median ratio, the lower of two. Its times stand for all: other load distorts some."""
        return sorted(range(len(self.ratios)), key=self.ratios.__getitem__)[(len(self.ratios) - 1) // 2]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of `times`, Student's t on the logarithms of the ratios; None for a single round.

        Rounds that end at a width and not at a verdict (`settled`) leave it a coverage of 92 to 95% for normal
        logarithms (simulated).
        """
        n = len(self.ratios)
        if n < 2:
            return None
        logs = np.log(self.ratios)
        half = STUDENT[min(n - 1, len(STUDENT)) - 1] * logs.std(ddof=1) / math.sqrt(n)
        return math.exp(logs.mean() - half), math.exp(logs.mean() + half)

    @property
    def verdict(self) -> str:
        """ "faster" or "slower" if the interval excludes 1, else "no difference"."""
        low, high = self.interval or (self.times / ENOUGH, self.times * ENOUGH)
        return "faster" if low > 1 else "slower" if high < 1 else "no difference"

    def settled(self, seconds: float) -> bool:
        """Whether no further round is worth its time, `seconds` after the first began."""
        if len(self.ratios) < FEWEST or self.interval is None:
            return False
        low, high = self.interval
        return high <= NARROW * low or len(self.ratios) >= MOST or seconds >= LONGEST_S

    def __str__(self) -> str:
        if self.interval is None:
            return f"drafted about {self.times:.2f} times as fast: {self.verdict}"
        low, high = self.interval
        spread = f"{low:.2f} to {high:.2f} in {len(self.ratios)} rounds"
        return f"drafted {self.times:.2f} times as fast ({spread}): {self.verdict}"

    def to_json(self) -> dict[str, float | Sequence[float] | str | None]:
        return {
            "speedup": self.times,
            "interval": None if self.interval is None else list(self.interval),
            "rounds": list(self.ratios),
            "verdict": self.verdict,
        }
