"""Entropy pruning: drop the n-grams whose loss changes the model least.

Stolcke, "Entropy-based pruning of backoff language models" (cs/0006025), in the form of OpenGrm's ngramshrink. Dropping
(h, w) alone, which turns bow(h) into bow'(h), makes the relative entropy of the model grow by

    D = -p(h) { p(w|h) [ln p(w|h') + ln bow'(h) - ln p(w|h)] + [ln bow'(h) - ln bow(h)] (1 - sum of kept p(.|h)) }

with p(h) by the chain rule; a context that begins with <s> has p(</s>) in place of p(<s>). An n-gram is dropped if
D < ln(1 + theta). Its score is the largest D of itself and of the n-grams that need it, as their context h or their
suffix h'w, so that what a higher theta keeps is contained in what a lower one keeps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rescore.lm.backoff import left_mass, with_backoff
from rescore.lm.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """How much is dropped: exactly one of the two.

    theta       n-grams whose D is below ln(1 + theta)
    max_ngrams  the n-grams of least score, until at most this many (unigrams counted) are left
    """

    theta: float | None = None
    max_ngrams: int | None = None

    def __post_init__(self) -> None:
        if (self.theta is None) == (self.max_ngrams is None):
            raise ValueError(
                "pruning: expected either theta or max_ngrams, got " + ("neither" if self.theta is None else "both")
            )
        if self.theta is not None and not (math.isfinite(self.theta) and self.theta >= 0):
            raise ValueError(f"theta: expected a finite number >= 0, got {self.theta}")
        if self.max_ngrams is not None and self.max_ngrams < 1:
            raise ValueError(f"max_ngrams: expected at least 1, got {self.max_ngrams}")


def prune(tables: Tables, options: PruneOptions) -> Tables:
    """The model without the n-grams that `options` drops, its backoffs made anew.

    Unigrams stay. An order that loses all its n-grams goes, so N may become smaller.
    """
    score = scores(tables)
    if options.theta is not None:
        least = math.log1p(options.theta)
        keep = [own >= least for own in score]
    else:
        assert options.max_ngrams is not None
        if options.max_ngrams < tables.vocab_size:
            raise ValueError(
                f"max_ngrams: expected at least the {tables.vocab_size} unigrams, which stay, got {options.max_ngrams}"
            )
        keep = _within(score, options.max_ngrams - tables.vocab_size)
    while keep and not keep[-1].any():
        keep.pop()
    kept = with_backoff(tables.keep([np.ones(tables.vocab_size, bool), *keep]))
    report = {"theta": options.theta, "max_ngrams": options.max_ngrams, "before": list(tables.ngrams)}
    before = tables.metadata.get("pruning")
    history = [*(before if isinstance(before, list) else []), {**report, "after": list(kept.ngrams)}]
    return replace(kept, metadata={**tables.metadata, "pruning": history})


def scores(tables: Tables) -> list[NDArray[np.float64]]:
    """What each n-gram of orders 2..N is worth, N - 1 arrays float64 [n]: the largest D of itself and its dependents."""
    context_logp = _context_logps(tables)
    score = [_losses(tables, order, context_logp[order - 2]) for order in range(2, tables.order + 1)]
    for order in range(tables.order, 2, -1):
        level = tables.levels[order - 1]
        np.maximum.at(score[order - 3], level.prefix, score[order - 2])
        np.maximum.at(score[order - 3], level.suffix, score[order - 2])
    return score


def _losses(tables: Tables, order: int, context_logp: NDArray[np.float64]) -> NDArray[np.float64]:
    """D of every n-gram of an order."""
    level = tables.levels[order - 1]
    left = left_mass(tables, order)
    logp = -tables.cost[order - 1]
    lower = -tables.cost[order - 2][level.suffix]
    own = left.own[level.prefix]
    log_bow = -tables.backoff[order - 2][level.prefix]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_new = np.log(own + np.exp(logp)) - np.log(left.lower[level.prefix] + np.exp(lower))
        change = np.exp(logp) * (lower + log_new - logp) + (log_new - log_bow) * own
    loss = -np.exp(context_logp[level.prefix]) * change
    return np.where(np.isnan(loss), np.inf, loss)


def _context_logps(tables: Tables) -> list[NDArray[np.float64]]:
    """ln p(h) of the n-grams of orders 1..N-1 as contexts, by the chain rule."""
    first = -tables.cost[0]
    if tables.bos is not None and tables.eos is not None:
        first = first.copy()
        first[tables.bos] = first[tables.eos]
    logps = [first]
    for order in range(2, tables.order):
        logps.append(logps[-1][tables.levels[order - 1].prefix] - tables.cost[order - 1])
    return logps


def _within(score: list[NDArray[np.float64]], budget: int) -> list[NDArray[np.bool_]]:
    """Masks of the best n-grams, `budget` at most; n-grams that tie at the limit go together."""
    every = np.concatenate(score) if score else np.zeros(0)
    if budget >= len(every):
        return [np.ones(len(own), bool) for own in score]
    limit = np.partition(every, len(every) - budget - 1)[len(every) - budget - 1]  # the best of what must go
    return [own > limit for own in score]
