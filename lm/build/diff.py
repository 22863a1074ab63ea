"""Differences between two models: n-grams in only one of them, costs and backoff costs of the others, metadata."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lm.build.interpolate import Union
from rescore.lm.model.grams import spell_context
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """How many entries are in one model, in the other and in both, and how far apart the costs in both are, in nats.

    mean, largest  of |a - b| over the entries in both, 0 if there are none
    worst          the tokens of the entry with the largest difference; its costs are `a` and `b`; None if all are equal
    """

    only_a: int
    only_b: int
    both: int
    mean: float = 0.0
    largest: float = 0.0
    worst: tuple[int, ...] | None = None
    a: float | None = None
    b: float | None = None

    @property
    def same(self) -> bool:
        return not (self.only_a or self.only_b or self.largest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDifference:
    """The differences between models a and b.

    ngrams    for orders 1..N of the longer model, by their costs
    contexts  for contexts of 1..N - 1 tokens, by their backoff costs
    facts     {name: (a's, b's)} of differing metadata; "words": whether a model has words, or how many differ
    """

    ngrams: tuple[Shared, ...]
    contexts: tuple[Shared, ...]
    facts: dict[str, tuple[Any, Any]]

    @property
    def same(self) -> bool:
        return not self.facts and all(own.same for own in (*self.ngrams, *self.contexts))

    def to_json(self) -> dict[str, Any]:
        """The differences as JSON."""
        return {"same": self.same, **asdict(self)}


def difference(a: NGram, b: NGram) -> ModelDifference:
    """The differences between two models. Ids are compared as numbers, even if the vocabularies differ."""
    models = a.to_tables(), b.to_tables()
    union = Union.of(models)
    orders = range(1, len(union.levels) + 1)
    return ModelDifference(
        ngrams=tuple(_grams(union, models, order) for order in orders),
        contexts=tuple(_contexts(union, models, order) for order in orders[1:]),
        facts=_facts(a, b),
    )


def _grams(union: Union, models: tuple[Tables, Tables], order: int) -> Shared:
    a, b = (_of_order(rows, model.cost, order - 1) for rows, model in zip(union.grams, models))
    shared, row = _shared(a, b)
    if row is None:
        return Shared(**shared)
    level = union.levels[order - 1]
    context = int(np.searchsorted(level.begin, np.uint64(row), "right")) - 1
    return Shared(**shared, worst=(*spell_context(union.levels, order, context), int(level.token[row])))


def _contexts(union: Union, models: tuple[Tables, Tables], order: int) -> Shared:
    a, b = (_of_order(rows, (np.zeros(1), *model.backoff), order - 1) for rows, model in zip(union.contexts, models))
    shared, row = _shared(a, b)
    return Shared(**shared, worst=None if row is None else spell_context(union.levels, order, row))


Costs = tuple[NDArray[np.int64], NDArray[np.float64]]  # which rows of the union, and their costs


def _of_order(rows: tuple[NDArray[np.int64], ...], costs: tuple[NDArray[np.float64], ...], at: int) -> Costs:
    return (rows[at], costs[at]) if at < len(rows) else (np.zeros(0, np.int64), np.zeros(0))


def _shared(a: Costs, b: Costs) -> tuple[dict[str, Any], int | None]:
    """The fields of `Shared` except `worst`, and the row of the latter; None if no costs differ."""
    both, in_a, in_b = np.intersect1d(a[0], b[0], assume_unique=True, return_indices=True)
    counts = {"only_a": len(a[0]) - len(both), "only_b": len(b[0]) - len(both), "both": len(both)}
    apart = np.abs(a[1][in_a] - b[1][in_b])
    if not apart.any():
        return counts, None
    worst = int(apart.argmax())
    return {
        **counts,
        "mean": float(apart.mean()),
        "largest": float(apart[worst]),
        "a": float(a[1][in_a[worst]]),
        "b": float(b[1][in_b[worst]]),
    }, int(both[worst])


def _facts(a: NGram, b: NGram) -> dict[str, tuple[Any, Any]]:
    mine, theirs = ({"order": model.order, "vocab_size": model.vocab_size, **model.metadata} for model in (a, b))
    found = {
        name: (mine.get(name), theirs.get(name))
        for name in {**mine, **theirs}
        if mine.get(name) != theirs.get(name) and name != "ngrams"
    }
    if a.words != b.words:
        found["words"] = _words(a.words, b.words), _words(b.words, a.words)
    return found


def _words(own: tuple[str, ...] | None, other: tuple[str, ...] | None) -> str:
    if own is None or other is None:
        return "none" if own is None else "some"
    return f"{sum(x != y for x, y in zip(own, other)) + max(len(own) - len(other), 0):,} others"
