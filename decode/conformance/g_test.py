"""G-tests: whether counts follow a law, and whether two samples follow the same one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST = 10  # expected counts of a cell; cells that expect less are taken together

Text = tuple[int, ...]


def g_test(observed: ArrayLike, expected: ArrayLike) -> float:
    """The p-value of counts [n] under expected ones of the same sum; 0 where something came that is not expected."""
    return upper_tail(*g_statistic(observed, expected))


def g_statistic(observed: ArrayLike, expected: ArrayLike) -> tuple[float, int]:
    """Twice the log likelihood ratio, with Williams' correction (1976), and its degrees of freedom."""
    counts, means = np.asarray(observed, np.float64), np.asarray(expected, np.float64)
    if counts[means <= 0].any():
        return math.inf, 1
    counts, means = counts[means > 0], means[means > 0]
    freedom, total = len(means) - 1, means.sum()
    if not freedom:
        return 0.0, 0
    seen = counts > 0
    g = 2 * float((counts[seen] * np.log(counts[seen] / means[seen])).sum())
    return g / (1 + float((total / means).sum() - 1) / (6 * total * freedom)), freedom


def upper_tail(g: float, freedom: int) -> float:
    """The probability that chi squared exceeds g, by the recurrence of the incomplete gamma function."""
    x = g / 2
    if x <= 0 or not freedom or math.isinf(x):
        return float(x <= 0 or not freedom)
    a = 0.5 if freedom % 2 else 1.0
    tail = math.erfc(math.sqrt(x)) if freedom % 2 else math.exp(-x)
    while a < freedom / 2:
        tail += math.exp(a * math.log(x) - x - math.lgamma(a + 1))
        a += 1
    return tail


def pooled(counts: ArrayLike, means: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both [n], with the cells that expect less than `LEAST` in one."""
    observed, expected = np.asarray(counts, np.float64), np.asarray(means, np.float64)
    order = np.argsort(expected)
    # The smallest ones, and as many more as the cell needs.
    few = max(int((expected < LEAST).sum()), int(np.searchsorted(expected[order].cumsum(), LEAST)) + 1)
    if few < 2:
        return observed, expected
    small, large = order[:few], order[few:]
    return np.append(observed[large], observed[small].sum()), np.append(expected[large], expected[small].sum())


def same_law(first: Sequence[Text], second: Sequence[Text]) -> tuple[float, int]:
    """G and degrees of freedom of two samples of texts; rare texts are taken together by their first tokens."""
    cells = [*first, *second]
    for size in range(max(map(len, cells)), 0, -1):
        count = Counter(cells)
        cells = [cell[: size - 1] if len(cell) == size and count[cell] < 2 * LEAST else cell for cell in cells]
    names = sorted(set(cells))
    table = np.array([[Counter(part)[name] for name in names] for part in (cells[: len(first)], cells[len(first) :])])
    return of_table(table)


def of_table(table: ArrayLike) -> tuple[float, int]:
    """G and degrees of freedom of a table of counts [m, n] whose rows and columns are independent."""
    counts = np.asarray(table, np.float64)
    counts = counts[counts.sum(1) > 0][:, counts.sum(0) > 0]
    means = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    g, _ = g_statistic(counts.ravel(), means.ravel())
    return g, (counts.shape[0] - 1) * (counts.shape[1] - 1)
