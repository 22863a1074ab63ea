"""Entropy pruning: drops the n-grams whose removal changes the model least.

Stolcke, "Entropy-based pruning of backoff language models" (cs/0006025), as in OpenGrm's ngramshrink. Dropping (h, w)
alone, which turns bow(h) into bow'(h), increases the relative entropy to the original model by

    D = -p(h) { p(w|h) [ln p(w|h') + ln bow'(h) - ln p(w|h)] + [ln bow'(h) - ln bow(h)] (1 - sum of kept p(.|h)) }

with p(h) by the chain rule; for a context that begins with <s>, p(</s>) replaces p(<s>). The lower orders of a
Kneser-Ney model do not estimate how frequent a word is, so the chain rule fails (Chelba et al., Interspeech 2010); p(h)
is then the relative frequency of h in the text, if the tables hold it.

The score of an n-gram is the largest D of itself and of the n-grams that need it as their context h or their suffix
h'w. It is dropped if its score is below ln(1 + theta). A higher theta thus keeps a subset of what a lower one keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.build.estimate import with_backoff
from rescore.lm.model.columns import Columns, blocks, over_contexts
from rescore.lm.model.grams import NOTHING, Grams
from rescore.lm.model.tables import Histories, Tables, links

NO_VALUES = np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneOptions:
    """How much is dropped; exactly one of the two must be given.

    theta       drop n-grams with a score below ln(1 + theta)
    max_ngrams  drop n-grams with the lowest scores until at most this many (including unigrams) are left
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

    def check(self, vocab_size: int) -> None:
        """Raises ValueError if max_ngrams is less than the number of unigrams."""
        if self.max_ngrams is not None and self.max_ngrams < vocab_size:
            raise ValueError(
                f"max_ngrams: expected at least {vocab_size}, the unigrams, which are kept, got {self.max_ngrams}"
            )


def prune(tables: Tables, options: PruneOptions, columns: Columns | None = None) -> Tables:
    """The model without the n-grams that `options` drops, with recomputed backoff weights.

    Unigrams stay. Orders that lose all n-grams are removed, so N may become smaller.
    """
    columns = columns or Columns()
    options.check(tables.vocab_size)
    if options.max_ngrams is not None and sum(tables.ngrams) <= options.max_ngrams:
        kept = tables
    else:
        score = scores(tables, columns)
        if options.max_ngrams is not None:
            limit = budget_limit(score, options.max_ngrams - tables.vocab_size, columns)
        else:
            assert options.theta is not None
            limit = math.nextafter(math.log1p(options.theta), -math.inf)
        kept = with_backoff(_above(tables, score, limit, columns), columns)
    report = {"theta": options.theta, "max_ngrams": options.max_ngrams, "before": list(tables.ngrams)}
    before = tables.metadata.get("pruning")
    history = [*(before if isinstance(before, list) else []), {**report, "after": list(kept.ngrams)}]
    return replace(kept, metadata={**tables.metadata, "pruning": history})


def scores(tables: Tables, columns: Columns | None = None) -> list[NDArray[np.float64]]:
    """The score of each n-gram of orders 2..N, N - 1 arrays float64 [n]: the largest D of itself and its dependents."""
    columns = columns or Columns()
    linked = links(tables.levels, columns)
    logps = _counted_logps(tables.histories, columns) if tables.histories else context_logps(tables, linked, columns)
    score: list[NDArray[np.float64]] = []
    best = NO_VALUES
    for order in range(tables.order, 1, -1):
        level, below = tables.levels[order - 1], tables.levels[order - 2]
        costs = (tables.cost[order - 2], tables.cost[order - 1], tables.backoff[order - 2], logps[order - 2])
        names = {f"{order}.loss": np.float64}
        (loss,) = over_contexts(columns, names, _core.losses, level, below.native, *costs)
        above: tuple[Any, ...] = (None, NO_VALUES, NO_VALUES, NOTHING)
        if order < tables.order:
            above = (tables.levels[order].native, score[-1], best, linked[order - 1])
        names = {f"{order}.score": np.float64, f"{order}.best": np.float64}
        own, best = over_contexts(columns, names, _core.scores, level, loss, *above)
        score.append(own)
    return score[::-1]


def context_logps(tables: Tables, linked: Sequence[NDArray[np.uint32]], columns: Columns) -> list[NDArray[np.float64]]:
    """ln p(h) of the contexts of orders 2..N, by the chain rule: N - 1 arrays float64 [C]."""
    logps, logp = [], np.zeros(1)
    for order in range(1, tables.order):
        level, above = tables.levels[order - 1], tables.levels[order]

        def write(
            longer: NDArray[np.float64],
            order: int = order,
            level: Grams = level,
            above: Grams = above,
            logp: NDArray[np.float64] = logp,
        ) -> None:
            for a, b in level.ranges():
                _core.context_logps(level.native, tables.cost[order - 1], logp, linked[order - 1], longer, a, b)
                columns.release()
            if order == 1 and tables.bos is not None and tables.eos is not None:
                longer[above.context_token == tables.bos] = -tables.cost[0][tables.eos]

        logp = columns.fill(f"{order + 1}.logp", np.float64, above.contexts, write)
        logps.append(logp)
    return logps


def _counted_logps(histories: Histories, columns: Columns) -> list[NDArray[np.float64]]:
    """ln p(h) of the contexts of orders 2..N, as relative frequencies: N - 1 arrays float64 [C]."""
    logps: list[NDArray[np.float64]] = []
    for order, count in enumerate(histories.count, 2):
        parts = ((np.log(block / histories.tokens),) for block in blocks(columns, count))
        logps += columns.write({f"{order}.logp": np.float64}, parts)
    return logps


def budget_limit(score: Sequence[NDArray[np.float64]], budget: int, columns: Columns) -> float:
    """The limit that at most `budget` scores exceed; n-grams whose score equals it are all dropped."""
    every = sum(map(len, score))
    if budget >= every:
        return -math.inf
    # Radix selection of the (budget + 1)-th greatest score, 16 bits at a time.
    rank, prefix = every - budget - 1, 0
    for shift in (48, 32, 16, 0):
        found = np.zeros(1 << 16, np.int64)
        for bits in _ordered_bits(score, columns):
            if shift < 48:
                bits = bits[(bits >> np.uint64(shift + 16)) == np.uint64(prefix)]
            found += np.bincount(((bits >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64), minlength=1 << 16)
        below = np.cumsum(found) - found
        digit = int(np.searchsorted(np.cumsum(found), rank, "right"))
        rank -= int(below[digit])
        prefix = prefix << 16 | digit
    return _from_ordered_bits(prefix)


def _ordered_bits(score: Sequence[NDArray[np.float64]], columns: Columns) -> Iterator[NDArray[np.uint64]]:
    """The scores as unsigned integers that sort in the same order."""
    top = np.uint64(1 << 63)
    for own in score:
        for block in blocks(columns, own):
            bits = np.ascontiguousarray(block).view(np.uint64)
            yield np.where(bits & top, ~bits, bits | top)


def _from_ordered_bits(number: int) -> float:
    top = 1 << 63
    bits = number ^ top if number & top else ~number & (2 * top - 1)
    return float(np.array([bits], np.uint64).view(np.float64)[0])


def _above(tables: Tables, score: Sequence[NDArray[np.float64]], limit: float, columns: Columns) -> Tables:
    """The n-grams whose score is above the limit, with their costs and without backoff costs."""
    levels, costs = [tables.levels[0]], [tables.cost[0]]
    seen: list[NDArray[np.uint64]] = []
    number: NDArray[np.uint32] = np.zeros(1, np.uint32)  # of each context of the order below, among those kept
    for order in range(2, tables.order + 1):
        level = tables.levels[order - 1]
        given = (score[order - 2], limit, tables.cost[order - 1], number)
        names = {
            "kept": np.uint32,
            "context_token": np.uint32,
            "context_parent": np.uint32,
            "size": np.uint64,
            "token": np.uint32,
            "cost_kept": np.float64,
        }
        kept, context_token, context_parent, size, token, kept_cost = over_contexts(
            columns, {f"{order}.{name}": dtype for name, dtype in names.items()}, _core.select, level, *given
        )
        if not len(token):
            break
        (begin,) = columns.write({f"{order}.begin": np.uint64}, _ends(columns, size))
        levels.append(Grams(context_token=context_token, context_parent=context_parent, begin=begin, token=token))
        costs.append(kept_cost)
        number = columns.fill(f"{order}.number", np.uint32, level.contexts, partial(_number, columns, kept))
        if tables.histories:
            parts = ((tables.histories.count[order - 2][block],) for block in blocks(columns, kept))
            seen += columns.write({f"{order}.seen": np.uint64}, parts)
    histories = replace(tables.histories, count=tuple(seen)) if tables.histories else None
    return replace(tables, levels=tuple(levels), cost=tuple(costs), backoff=(), histories=histories)


def _ends(columns: Columns, size: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.uint64]]]:
    """Yields 0 and the cumulative sums of the sizes."""
    yield (np.zeros(1, np.uint64),)
    before = np.uint64(0)
    for block in blocks(columns, size):
        ends = np.cumsum(block, dtype=np.uint64) + before
        before = ends[-1]
        yield (ends,)


def _number(columns: Columns, kept: NDArray[np.uint32], number: NDArray[np.uint32]) -> None:
    """Numbers the kept contexts; the entries of others are undefined and never read."""
    at = 0
    for block in blocks(columns, kept):
        number[block] = np.arange(at, at + len(block), dtype=np.uint32)
        at += len(block)
