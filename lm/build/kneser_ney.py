"""Interpolated modified Kneser-Ney estimation, as in KenLM's lmplz (Heafield et al., ACL 2013).

Chen and Goodman 1998 (TR-10-98), section 3. With a(hw) the adjusted count of an n-gram (`AdjustedCounts`), a(h) its
sum over all w, and n_r the number of n-grams of the order with adjusted count r, both before any cut-off:

    p(w | h) = (a(hw) - D(a(hw))) / a(h) + gamma(h) p(w | h')        p(w | h') of the empty h: 1 / V

    Y = n_1 / (n_1 + 2 n_2)     D(r) = r - (r + 1) Y n_{r+1} / n_r for r = 1, 2;  D(3) of all counts from 3 on

gamma(h) is the remaining mass: the discounts of the kept n-grams and the whole counts of those cut off. The result is a
backoff model with bow(h) = gamma(h), in which every context sums to one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.build.counts import AdjustedCounts, Counts
from rescore.lm.model.tables import NEVER, Columns, Histories, Memory, Tables, in_order

REMEDY = "give --discount-fallback 0.5,1,1.5, or estimate with --method katz"


@dataclass(frozen=True, slots=True, kw_only=True)
class KneserNeyOptions:
    """Options of Kneser-Ney estimation.

    discount_fallback  D1, D2 and D3+ for orders whose counts of counts give no valid discounts, 0 < Dr <= r;
                       None makes such orders an error
    """

    discount_fallback: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        if self.discount_fallback is not None and not are_discounts(self.discount_fallback):
            raise ValueError(
                f"discount_fallback: expected three numbers, 0 < D1 <= 1, 0 < D2 <= 2, 0 < D3 <= 3, "
                f"got {self.discount_fallback}"
            )


def are_discounts(d: tuple[float, ...]) -> bool:
    """Whether these are valid discounts D1, D2 and D3+."""
    return len(d) == 3 and all(0 < own <= r for r, own in enumerate(d, 1))


def kneser_ney(counts: Counts, options: KneserNeyOptions | None = None, columns: Columns | None = None) -> Tables:
    """Estimates the Kneser-Ney model of counts with adjusted counts; `metadata["estimation"]` records the discounts.

    ValueError if the counts of counts of an order give no discounts, as happens with little or artificial text.
    """
    options, columns, adjusted = options or KneserNeyOptions(), columns or Memory(), counts.adjusted
    if adjusted is None:
        raise ValueError("counts: expected adjusted counts, got none; count with adjusted=True")
    discounts = [_discounts(own, order, options) for order, own in enumerate(adjusted.of_counts, 1)]
    costs, backoffs = [unigram_costs(adjusted.count[0], np.array(discounts[0]["d"]), counts.bos)], []
    for order in range(2, counts.order + 1):
        cost, backoff = _estimate_order(counts, adjusted, order, discounts[order - 1]["d"], costs[-1], columns)
        costs.append(cost)
        backoffs.append(backoff)
    return Tables(
        levels=counts.levels,
        cost=tuple(costs),
        backoff=tuple(backoffs),
        bos=counts.bos,
        eos=counts.eos,
        metadata={"estimation": _report(counts, options, discounts)},
        histories=Histories(count=counts.total, tokens=counts.tokens),
    )


def _estimate_order(
    counts: Counts,
    adjusted: AdjustedCounts,
    order: int,
    d: list[float],
    below_cost: NDArray[np.float64],
    columns: Columns,
) -> list[NDArray[np.float64]]:
    """Costs of the n-grams of an order (2..N) and backoff costs of their contexts.

    below_cost  costs of the order below
    """
    level, native, below = counts.levels[order - 1], counts.levels[order - 1].native, counts.levels[order - 2].native
    count, total, discount = adjusted.count[order - 1], adjusted.total[order - 2], np.array(d)

    def part(a: int, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _core.kneser_ney(native, below, below_cost, count, total, discount, a, b)

    return columns.write(
        {f"{order}.cost": np.float64, f"{order}.backoff": np.float64}, in_order(columns, part, level.ranges())
    )


def unigram_costs(count: NDArray[np.uint64], d: NDArray[np.float64], bos: int | None) -> NDArray[np.float64]:
    """-ln p of every id, float64 [V], interpolated with the uniform distribution, which is all that unseen ids get."""
    taken = np.concatenate([np.zeros(1), d])[np.minimum(count, 3).astype(np.int64)]
    uniform = 1 / (len(count) - (bos is not None))
    cost = math.log(count.sum()) - np.log(count - taken + taken.sum() * uniform)
    if bos is not None:
        cost[bos] = NEVER
    return cost


def modified_discounts(of_counts: list[int]) -> tuple[float, float, float]:
    """D1, D2 and D3+ (equation 26). of_counts: n_1 .. n_4; the first three must not be zero."""
    y = of_counts[0] / (of_counts[0] + 2 * of_counts[1])
    d1, d2, d3 = (r - (r + 1) * y * of_counts[r] / of_counts[r - 1] for r in (1, 2, 3))
    return d1, d2, d3


def _discounts(of_counts: list[int], order: int, options: KneserNeyOptions) -> dict[str, Any]:
    """The discounts of one order, and whether they are the fallback."""
    n = of_counts[1:5]
    d = modified_discounts(n) if all(n[:3]) else None
    fell_back = d is None or not are_discounts(d)
    if fell_back and options.discount_fallback is None:
        got = "D1, D2, D3 = " + ", ".join(f"{own:.3f}" for own in d) if d else f"n_1, n_2, n_3 = {n[0]}, {n[1]}, {n[2]}"
        raise ValueError(
            f"Kneser-Ney discounts of order {order}: expected n-grams of adjusted counts 1, 2 and 3 that give "
            f"0 < D1 <= 1, 0 < D2 <= 2, 0 < D3 <= 3, got {got}; is the text small, artificial or repeated? "
            f"If so, {REMEDY}"
        )
    used = options.discount_fallback if fell_back else d
    assert used is not None
    return {"order": order, "counts_of_counts": n, "d": list(used), "fell_back": fell_back}


def _report(counts: Counts, options: KneserNeyOptions, discounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "method": "kneser-ney",
        "tokens": counts.tokens,
        "ngrams_counted": counts.seen,
        "ids_unseen": int((counts.count[0] == 0).sum()),
        "options": {**asdict(options), "min_counts": list(counts.min_counts)},
        "discounts": discounts,
    }
