"""Estimates a backoff model from counts: Katz as in OpenGrm NGram, or modified Kneser-Ney as in KenLM's lmplz.

Katz. For an n-gram hw seen r times, with n_r the number of n-grams of its order seen r times before any cut-off:

    r* = (r + 1) n_{r+1} / n_r        g = (k + 1) n_{k+1} / n_1        d_r = (r*/r - g) / (1 - g)

where zero counts of counts are left out of r* and of the denominator of g (a zero n_{k+1} makes g zero, as in the
reference model), and p(w | h) = d_r c(hw) / c(h), where c(h) is the sum of c(hw) over all w.

Interpolated modified Kneser-Ney (Heafield et al., ACL 2013; Chen and Goodman 1998, TR-10-98, section 3). With a(hw) the
adjusted count of an n-gram (`AdjustedCounts`), a(h) its sum over all w, and n_r the number of n-grams of the order with
adjusted count r, both before any cut-off:

    p(w | h) = (a(hw) - D(a(hw))) / a(h) + gamma(h) p(w | h')        p(w | h') of the empty h: 1 / V

    Y = n_1 / (n_1 + 2 n_2)     D(r) = r - (r + 1) Y n_{r+1} / n_r for r = 1, 2;  D(3) of all counts from 3 on

gamma(h) is the remaining mass: the discounts of the kept n-grams and the whole counts of those cut off. The result is a
backoff model with bow(h) = gamma(h), in which every context sums to one.

Models that are pruned or mixed get their backoff weights from their probabilities:

    bow(h) = (1 - sum of p(w | h)) / (1 - sum of p(w | h')),   both sums over the words w with an n-gram hw
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.checked import whole
from rescore.lm.build.counts import MAX_COUNT, AdjustedCounts, Counts
from rescore.lm.model.columns import Columns, over_contexts
from rescore.lm.model.tables import MAX_COST, NEVER, Histories, Tables

REMEDY = "give --discount-fallback 0.5,1,1.5, or estimate with --method katz"


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
        whole(self.k, "k, the largest discounted count", 1, MAX_COUNT - 1)
        if self.unseen_cost is not None and not 0 <= self.unseen_cost <= MAX_COST:
            raise ValueError(f"unseen_cost: expected a cost in 0..{MAX_COST:.0f}, got {self.unseen_cost}")


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


EstimateOptions = KatzOptions | KneserNeyOptions


def needs_adjusted(options: EstimateOptions | None) -> bool:
    """Whether the method needs adjusted counts."""
    return isinstance(options, KneserNeyOptions)


def are_discounts(d: tuple[float, ...]) -> bool:
    """Whether these are valid discounts D1, D2 and D3+."""
    return len(d) == 3 and all(0 < own <= r for r, own in enumerate(d, 1))


def estimate_model(counts: Counts, options: EstimateOptions | None = None, columns: Columns | None = None) -> Tables:
    """Estimates a model by the method of the options, by Katz if they are None; `metadata["estimation"]` records the
    discounts.

    Kneser-Ney needs adjusted counts. ValueError if the counts of counts of an order give it no discounts, as happens
    with little or artificial text.
    """
    options, columns = options or KatzOptions(), columns or Columns()
    if isinstance(options, KatzOptions):
        return _estimate(counts, counts, options, columns)
    if counts.adjusted is None:
        raise ValueError("counts: expected adjusted counts, got none; count with adjusted=True")
    tables = _estimate(counts, counts.adjusted, options, columns)
    return replace(tables, histories=Histories(count=counts.total, tokens=counts.tokens))


def _estimate(counts: Counts, used: Counts | AdjustedCounts, options: EstimateOptions, columns: Columns) -> Tables:
    """The model of the counts by the counts that its method uses."""
    if isinstance(options, KatzOptions):
        method, part, unigrams = "katz", _core.estimate, _katz_unigrams(counts, options)
        discounts = [_katz_discounts(own, order, options) for order, own in enumerate(used.of_counts[1:], 2)]
    else:
        method, part = "kneser-ney", _core.kneser_ney
        discounts = [_kneser_ney_discounts(own, order, options) for order, own in enumerate(used.of_counts, 1)]
        unigrams = _kneser_ney_unigrams(used.count[0], np.array(discounts[0]["d"]))
    costs, backoffs = [unigrams], []
    for own in (own for own in discounts if own["order"] > 1):
        order, d = own["order"], np.array(own["d"])
        level, below = counts.levels[order - 1], counts.levels[order - 2]
        given = (below.native, costs[-1], used.count[order - 1], used.total[order - 2], d)
        names = {f"{order}.cost": np.float64, f"{order}.backoff": np.float64}
        cost, backoff = over_contexts(columns, names, part, level, *given)
        costs.append(cost)
        backoffs.append(backoff)
    report = {
        "method": method,
        "tokens": counts.tokens,
        "ngrams_counted": counts.seen,
        "ids_unseen": int((counts.count[0] == 0).sum()),
        "options": {**asdict(options), "min_counts": list(counts.min_counts)},
        "discounts": discounts,
    }
    return Tables(
        levels=counts.levels,
        cost=tuple(costs),
        backoff=tuple(backoffs),
        bos=counts.bos,
        eos=counts.eos,
        metadata={"estimation": report},
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


def _katz_discounts(of_counts: list[int], order: int, options: KatzOptions) -> dict[str, Any]:
    n = of_counts[1 : options.k + 2]
    return {"order": order, "counts_of_counts": n, **good_turing(n, options)}


def _katz_unigrams(counts: Counts, options: KatzOptions) -> NDArray[np.float64]:
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


def modified_discounts(of_counts: list[int]) -> tuple[float, float, float]:
    """D1, D2 and D3+ of Kneser-Ney (equation 26). of_counts: n_1 .. n_4; the first three must not be zero."""
    y = of_counts[0] / (of_counts[0] + 2 * of_counts[1])
    d1, d2, d3 = (r - (r + 1) * y * of_counts[r] / of_counts[r - 1] for r in (1, 2, 3))
    return d1, d2, d3


def _kneser_ney_discounts(of_counts: list[int], order: int, options: KneserNeyOptions) -> dict[str, Any]:
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


def _kneser_ney_unigrams(count: NDArray[np.uint64], d: NDArray[np.float64]) -> NDArray[np.float64]:
    """-ln p of every id, float64 [V], interpolated with the uniform distribution, which is all that unseen ids get.

    count  adjusted
    """
    taken = np.concatenate([np.zeros(1), d])[np.minimum(count, 3).astype(np.int64)]
    return math.log(count.sum()) - np.log(count - taken + taken.sum() * (1 / len(count)))


def with_backoff(tables: Tables, columns: Columns | None = None) -> Tables:
    """The model with backoff costs computed from its probabilities, so that every context sums to one.

    Two kinds of contexts are rescaled first. If a context leaves no mass to back off with, its probabilities are scaled
    by c / (c + 1), where c is the inverse of the smallest, as if one more event had been seen. If the shorter context
    has no mass for other words, they are scaled to sum to 1.
    """
    columns = columns or Columns()
    costs, backoffs = [tables.cost[0]], []
    for order, (level, below) in enumerate(zip(tables.levels[1:], tables.levels), 2):
        names = {f"{order}.cost": np.float64, f"{order}.backoff": np.float64}
        given = (below.native, costs[-1], tables.cost[order - 1])
        cost, backoff = over_contexts(columns, names, _core.normalise, level, *given)
        costs.append(cost)
        backoffs.append(backoff)
    return replace(tables, cost=tuple(costs), backoff=tuple(backoffs))
