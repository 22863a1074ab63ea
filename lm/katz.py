"""Katz backoff models from counts, with the conventions of OpenGrm NGram.

Katz, "Estimation of probabilities from sparse data" (1987). With counts of counts n_r per order, counts r <= k are
discounted by Good-Turing

    r* = (r + 1) n_{r+1} / n_r,    g = (k + 1) n_{k+1} / n_1,    d_r = (r*/r - g) / (1 - g)

where a zero count of counts is left out of r* and of the denominator of g (a zero n_{k+1} makes g zero, which the
reference model shows), and p(w | h) = d_r c(hw) / c(h), c(h) being the sum of c(hw) over all w.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lm.backoff import with_backoff
from rescore.lm.counts import Counts
from rescore.lm.grams import select
from rescore.lm.tables import NEVER, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class KatzOptions:
    """How a Katz model is estimated.

    k           largest count that Good-Turing discounts
    textbook    no discount (d = 1) above k and where Good-Turing gives none in (0, 1), instead of OpenGrm's 0.999
    min_counts  smallest count that is kept, for orders 1, 2, ..; orders beyond keep all. Unigrams stay: the first is 1
    unseen_cost cost of ids never seen, as in the paper's appendix D (1000.0). None reserves mass for them: as many
                events as ids were seen once, shared equally, an unseen id counting for one event at most
    """

    k: int = 5
    textbook: bool = False
    min_counts: tuple[int, ...] = ()
    unseen_cost: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= 1000:
            raise ValueError(f"k, the largest discounted count: expected 1..1000, got {self.k}")
        if any(least < 1 for least in self.min_counts) or self.min_counts[:1] not in ((), (1,)):
            raise ValueError(f"min_counts: expected 1 for unigrams and at least 1 after, got {self.min_counts}")
        if self.unseen_cost is not None and not (math.isfinite(self.unseen_cost) and self.unseen_cost >= 0):
            raise ValueError(f"unseen_cost: expected a finite cost >= 0, got {self.unseen_cost}")


def katz(counts: Counts, options: KatzOptions | None = None) -> Tables:
    """The Katz model of the counts; `metadata["estimation"]` says which discounts were used."""
    options = options or KatzOptions()
    if len(options.min_counts) > counts.order:
        raise ValueError(f"min_counts: expected at most {counts.order} orders, got {len(options.min_counts)}")
    discounts = [_discounts(counts, order, options) for order in range(2, counts.order + 1)]
    keep = _kept(counts, options)
    cost = [unigram_costs(counts, options)]
    for order in range(2, counts.order + 1):
        cost.append(_costs(counts, order, discounts[order - 2]["d"], keep[order - 1]))
    tables = Tables(
        levels=select(counts.levels, keep),
        cost=tuple(cost),
        backoff=tuple(np.zeros(int(mask.sum())) for mask in keep[:-1]),
        bos=counts.bos,
        eos=counts.eos,
        metadata={"estimation": _report(counts, options, discounts)},
    )
    return with_backoff(tables)


def good_turing(of_counts: list[int], options: KatzOptions) -> dict[str, Any]:
    """The discounts of one order: `d` of counts 1..k and of all above (k + 1 numbers), `fallbacks`: counts r <= k
    that Good-Turing gives no discount in (0, 1) for. `of_counts`: n_1 .. n_{k+1}."""
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
    """-ln p of every id, float64 [V]: relative frequencies, and the share of the ids never seen."""
    count = counts.count[0].astype(np.float64)
    unseen = count == 0
    if counts.bos is not None:
        unseen[counts.bos] = False
    events = float(count.sum())
    reserved = 0.0
    if options.unseen_cost is None and unseen.any():
        reserved = min(max(counts.of_counts(1, 1)[0], 1), int(unseen.sum()))
        count[unseen] = reserved / int(unseen.sum())
    with np.errstate(divide="ignore"):
        cost = math.log(events + reserved) - np.log(count)
    if options.unseen_cost is not None:
        cost[unseen] = options.unseen_cost
    if counts.bos is not None:
        cost[counts.bos] = NEVER
    return cost


def _discounts(counts: Counts, order: int, options: KatzOptions) -> dict[str, Any]:
    of_counts = counts.of_counts(order, options.k + 1)
    return {"order": order, "counts_of_counts": of_counts, **good_turing(of_counts, options)}


def _kept(counts: Counts, options: KatzOptions) -> list[NDArray[np.bool_]]:
    """Which n-grams pass the cut-offs, their contexts and suffixes with them: bool [n] per order."""
    keep = [np.ones(counts.vocab_size, bool)]
    for level, count, order in zip(counts.levels[1:], counts.count[1:], range(2, counts.order + 1)):
        least = options.min_counts[order - 1] if order <= len(options.min_counts) else 1
        keep.append((count >= least) & keep[-1][level.prefix] & keep[-1][level.suffix])
    return keep


def _costs(counts: Counts, order: int, d: list[float], keep: NDArray[np.bool_]) -> NDArray[np.float64]:
    """-ln p(w | h) of the kept n-grams of an order (2..N)."""
    level, count = counts.levels[order - 1], counts.count[order - 1]
    context = level.total(count, len(counts.levels[order - 2]))[level.prefix[keep]]
    count = count[keep]
    discount = np.array([1.0, *d])[np.minimum(count, len(d))]
    return np.log(context) - np.log(discount * count)


def _report(counts: Counts, options: KatzOptions, discounts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "method": "katz",
        "tokens": counts.tokens,
        "ngrams_counted": [len(level) for level in counts.levels],
        "ids_unseen": int((counts.count[0] == 0).sum()),
        "options": {**asdict(replace(options)), "min_counts": list(options.min_counts)},
        "discounts": discounts,
    }
