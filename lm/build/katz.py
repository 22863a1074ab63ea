"""Katz estimation, with the conventions of OpenGrm NGram.

For an n-gram hw seen r times, with n_r the number of n-grams of its order seen r times before any cut-off:

    r* = (r + 1) n_{r+1} / n_r        g = (k + 1) n_{k+1} / n_1        d_r = (r*/r - g) / (1 - g)

where zero counts of counts are left out of r* and of the denominator of g (a zero n_{k+1} makes g zero, as in the
reference model), and p(w | h) = d_r c(hw) / c(h), where c(h) is the sum of c(hw) over all w.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.build.counts import MAX_COUNT, Counts
from rescore.lm.model.tables import MAX_COST, NEVER, Columns, Memory, Tables, in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class KatzOptions:
    """Options of Katz estimation.

    k           largest count that Good-Turing discounts
    textbook    no discount (d = 1) above k and where Good-Turing gives none in (0, 1), instead of OpenGrm's 0.999
    unseen_cost cost of ids never seen, as in the paper's appendix D (1000.0). None reserves mass for them: as many
                events as there are ids seen once, at most one per unseen id, shared equally
    """

    k: int = 5
    textbook: bool = False
    unseen_cost: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k < MAX_COUNT:
            raise ValueError(f"k, the largest discounted count: expected 1..{MAX_COUNT - 1}, got {self.k}")
        if self.unseen_cost is not None and not 0 <= self.unseen_cost <= MAX_COST:
            raise ValueError(f"unseen_cost: expected a cost in 0..{MAX_COST:.0f}, got {self.unseen_cost}")


def katz(counts: Counts, options: KatzOptions | None = None, columns: Columns | None = None) -> Tables:
    """Estimates the Katz model of the counts; `metadata["estimation"]` records the discounts."""
    options, columns = options or KatzOptions(), columns or Memory()
    discounts = [_discounts(counts, order, options) for order in range(2, counts.order + 1)]
    costs, backoffs = [unigram_costs(counts, options)], []
    for order in range(2, counts.order + 1):
        cost, backoff = estimate_order(counts, order, discounts[order - 2]["d"], costs[-1], columns)
        costs.append(cost)
        backoffs.append(backoff)
    return Tables(
        levels=counts.levels,
        cost=tuple(costs),
        backoff=tuple(backoffs),
        bos=counts.bos,
        eos=counts.eos,
        metadata={"estimation": _report(counts, options, discounts)},
    )


def estimate_order(
    counts: Counts, order: int, d: list[float], below_cost: NDArray[np.float64], columns: Columns
) -> list[NDArray[np.float64]]:
    """Costs of the n-grams of an order (2..N) and backoff costs of their contexts.

    below_cost  costs of the order below
    """
    level, native, below = counts.levels[order - 1], counts.levels[order - 1].native, counts.levels[order - 2].native
    discount = np.array(d)

    def part(a: int, b: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _core.estimate(
            native, below, below_cost, counts.count[order - 1], counts.total[order - 2], discount, a, b
        )

    return columns.write(
        {f"{order}.cost": np.float64, f"{order}.backoff": np.float64}, in_order(columns, part, level.ranges())
    )


def good_turing(of_counts: list[int], options: KatzOptions) -> dict[str, Any]:
    """The discounts of one order.

    Returns `d`, the discounts of counts 1..k and of all greater counts (k + 1 numbers), and `fallbacks`, the counts
    r <= k without a Good-Turing discount in (0, 1). of_counts: n_1 .. n_{k+1}.
    """
    k, last = options.k, 1.0 if options.textbook else 0.999
    n = [1, *(number or 1 for number in of_counts)]  # a zero is left out of its ratio
    g = (k + 1) * of_counts[k] / n[1]
    d, fallbacks = [], []
    for r in range(1, k + 1):
        value = ((r + 1) * n[r + 1] / n[r] / r - g) / (1 - g) if g != 1 else math.inf
        if not 0 < value < 1:
            value = last
            fallbacks.append(r)
        d.append(value)
    return {"d": [*d, last], "fallbacks": fallbacks}


def unigram_costs(counts: Counts, options: KatzOptions) -> NDArray[np.float64]:
    """-ln p of every id, float64 [V]: relative frequencies, with mass reserved for the ids never seen."""
    count = counts.count[0].astype(np.float64)
    unseen = count == 0
    if counts.bos is not None:
        unseen[counts.bos] = False
    events = float(count.sum())
    reserved = 0.0
    if options.unseen_cost is None and unseen.any():
        reserved = min(max(counts.of_counts[0][1], 1), int(unseen.sum()))
        count[unseen] = reserved / int(unseen.sum())
    with np.errstate(divide="ignore"):
        cost = math.log(events + reserved) - np.log(count)
    if options.unseen_cost is not None:
        cost[unseen] = options.unseen_cost
    if counts.bos is not None:
        cost[counts.bos] = NEVER
    return cost


def _discounts(counts: Counts, order: int, options: KatzOptions) -> dict[str, Any]:
    of_counts = counts.of_counts[order - 1][1 : options.k + 2]
    return {"order": order, "counts_of_counts": of_counts, **good_turing(of_counts, options)}


def _report(counts: Counts, options: KatzOptions, discounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "method": "katz",
        "tokens": counts.tokens,
        "ngrams_counted": counts.seen,
        "ids_unseen": int((counts.count[0] == 0).sum()),
        "options": {**asdict(replace(options)), "min_counts": list(counts.min_counts)},
        "discounts": discounts,
    }
