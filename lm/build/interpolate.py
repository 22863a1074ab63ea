"""Merges several models into one backoff model over the n-grams of all of them.

Linear (Jelinek and Mercer 1980):        p(w | h) = sum_j lambda_j p_j(w | h),           the lambda_j summing to one
log-linear (Klakow, ICSLP 1998):         p(w | h) = 1/Z(h) prod_j p_j(w | h)^lambda_j

Both are dynamic mixtures, which look up every word in all models. This module computes one static model instead, like
SRILM's `ngram -mix-lm` (Stolcke, ICSLP 2002, section 3). It holds every n-gram of any of the models with its
probability under the mixture, and backoff weights that make every context sum to one.

- Linear: exact for these n-grams. A word that no model has after h gets bow(h) p(w | h'). This is an approximation: in
  the mixture each model backs off from h with its own weight. The total mass of these words is exact.
- Log-linear: exact for every word after every history, since backing off commutes with products. Let
  u(w | h) = prod_j p_j(w | h)^lambda_j and B(h) = prod_j bow_j(h)^lambda_j (bow_j = 1 if h is not a context of model
  j). A word that no model has after h has u(w | h) = B(h) u(w | h'), so the sum over the vocabulary, from the root up,
  is
      Z(h) = sum of u(w | h) over the n-grams of h + B(h) [Z(h') - sum of u(w | h') over the same words]
  and p(w | h) = u(w | h) / Z(h) backs off with bow(h) = B(h) Z(h') / Z(h), the same for all these words.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lm.build.estimate import with_backoff
from rescore.lm.model.gram_rows import tables_of_rows
from rescore.lm.model.grams import MAX_VOCABULARY, TOKEN_BITS, Grams, pack
from rescore.lm.model.ngram import BOS, EOS, NGram
from rescore.lm.model.tables import NEVER, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """How models are mixed.

    weights     lambda of each model, finite and >= 0, not all 0; if linear, summing to one
    log_linear  log-linear instead of linear
    """

    weights: tuple[float, ...]
    log_linear: bool = False

    def __post_init__(self) -> None:
        if not all(math.isfinite(weight) and weight >= 0 for weight in self.weights) or not any(self.weights):
            raise ValueError(f"weights: expected finite numbers >= 0, not all of them 0, got {_listed(self.weights)}")
        if not self.log_linear and abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError(
                f"weights: expected a sum of 1, got {_listed(self.weights)}, which sum to {sum(self.weights):g}; "
                "only log-linear weights need not sum to 1"
            )

    @classmethod
    def equal(cls, models: int, *, log_linear: bool = False) -> Mixture:
        """Equal weights for this many models."""
        return cls(weights=(1 / models,) * models, log_linear=log_linear)


def merge_models(models: Sequence[NGram], weights: Mixture | Sequence[float] | None = None) -> NGram:
    """Merges one or more models over the same tokens (see `check_alike`), or of words (see `with_one_vocabulary`), into
    one.

    weights: of a linear mixture, summing to one; a `Mixture`, which may be log-linear; None: equal, linear.
    `metadata["interpolation"]` of the result records the models and weights.
    """
    if not isinstance(weights, Mixture):
        weights = Mixture.equal(len(models)) if weights is None else Mixture(weights=tuple(weights))
    check_alike(with_one_vocabulary(models, log_linear=weights.log_linear))
    used = [number for number, weight in enumerate(weights.weights[: len(models)]) if weight]
    models = list(models)
    for number, model in zip(used, with_one_vocabulary([models[number] for number in used])):
        models[number] = model  # the others add no words either
    tables = interpolate([model.to_tables() for model in models], weights)
    words = next((models[number].words for number in used if models[number].words is not None), None)
    return NGram.from_tables(tables, words=words)


def interpolate(models: Sequence[Tables], mixture: Mixture) -> Tables:
    """Merges tables with the same vocabulary. A model of weight 0 adds nothing, not even its n-grams."""
    if len(models) != len(mixture.weights):
        raise ValueError(f"weights: expected one for each of the {len(models)} models, got {len(mixture.weights)}")
    used = [model for model, weight in zip(models, mixture.weights) if weight]
    weights = np.array([weight for weight in mixture.weights if weight])
    union = Union.of(used)
    if mixture.log_linear:
        cost, backoff = zip(*_products(union, used, weights))
    else:
        cost, backoff = tuple(mixed_cost(own, weights) for own, _ in union.costs(used)), ()
    mixed = Tables(
        levels=union.levels,
        cost=cost,
        backoff=backoff[1:],
        bos=used[0].bos,
        eos=used[0].eos,
        metadata=_metadata(models, mixture),
    )
    return mixed if mixture.log_linear else with_backoff(mixed)


def mixed_cost(cost: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """-ln sum_j lambda_j exp(-cost_j) of costs [J, n], float64 [n]; no weight may be 0."""
    shifted = cost - np.log(weights)[:, None]
    least = shifted.min(axis=0)
    return least - np.log(np.exp(least - shifted).sum(axis=0))


def _products(
    union: Union, models: Sequence[Tables], weights: NDArray[np.float64]
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Costs [n] and backoff costs [C] of each order of the log-linear mixture."""
    below: Grams | None = None
    below_cost, below_z = np.zeros(0), np.zeros(0)
    for level, (costs, backoffs) in zip(union.levels, union.costs(models)):
        cost, backoff = weights @ costs, weights @ backoffs
        if below is None:
            z = np.array([np.exp(-cost).sum()])
            yield cost + math.log(z[0]), backoff
        else:
            z = _core.sums(level.native, below.native, below_cost, cost, backoff, below_z, 0, level.contexts)
            log_z = np.log(z)
            yield cost + log_z[level.context()], backoff + log_z - np.log(below_z)[level.context_parent]
        below, below_cost, below_z = level, cost, z


def with_one_vocabulary(models: Sequence[NGram], *, log_linear: bool = False) -> Sequence[NGram]:
    """Numbers the words of models without a tokenizer alike: those of the first model, then those that each adds.

    A word that a model lacks is impossible in it, as in SRILM's -mix-lm; ValueError if `log_linear`, as it would be so
    in the product. Where one model has an end of text, <s> and </s> of the others become it.
    """
    ends = {model.words[model.end_of_text] for model in models if model.words and model.end_of_text is not None}
    if len({model.words for model in models}) < 2 or not all(map(_has_own_words, models)) or len(ends) > 1:
        return models
    words = [*dict.fromkeys(word for model in models for word in model.words or () if not (ends and word == BOS))]
    for model in models if log_linear else ():
        if lacking := {*words}.difference(model.words or (), {BOS, EOS}, ends):
            raise ValueError(
                f"log-linear: expected models of the same words, got one without {min(lacking)!r}, whose probability "
                "would be 0 in the product; merge them linearly"
            )
    return [_over_words(model, words, *ends) for model in models]


def _has_own_words(model: NGram) -> bool:
    """Whether its words are what counts, not its ids: no tokenizer gave them."""
    words = model.words
    return words is not None and "" not in words and len({*words}) == len(words) and "tokenizer" not in model.metadata


def _over_words(model: NGram, words: Sequence[str], end: str | None = None) -> NGram:
    """The model over the ids of more words. end: what its <s> and </s> become."""
    tables, number = model.to_tables(), {word: i for i, word in enumerate(words)}
    special = (("bos", tables.bos), ("eos", tables.eos), ("end_of_text", model.end_of_text))
    marks = {name: token for name, token in special if token is not None}
    ids = np.array([number.get(word, -1) for word in model.words or ()])
    if end is not None:
        ids[[*marks.values()]] = number[end]
    rows = [ids[tables.spell(order)] for order in range(1, tables.order + 1)]
    cost, backoff = list(tables.cost), [np.nan_to_num(own) for own in tables.gram_backoffs()]
    bos, marks = marks.get("bos"), {name: int(ids[token]) for name, token in marks.items()}
    if end is not None:
        if bos is not None:  # never an event, and </s> never a context: one id serves both
            for own in backoff[:1]:
                own[ids == number[end]] = own[bos]
            rows[0], cost[0], *backoff[:1] = (np.delete(own, bos, axis=0) for own in (rows[0], cost[0], *backoff[:1]))
        marks = {"end_of_text": number[end]}
    made = tables_of_rows(rows, cost, backoff, vocab_size=len(words), unseen_cost=NEVER)
    metadata = {name: value for name, value in tables.metadata.items() if name not in dict(special)}
    return NGram.from_tables(made, words=words, metadata={**metadata, **marks})


def check_alike(models: Sequence[NGram], names: Sequence[str] = ()) -> None:
    """Raises ValueError unless the models have the same vocabulary size, tokenizer, words and special ids.

    names  of the models, for the message; empty: model 1, model 2, ..
    """
    if not models:
        raise ValueError("models: expected at least one, got none")
    names = names or [f"model {number}" for number in range(1, len(models) + 1)]
    for what in ("vocabulary size", "tokenizer", "end_of_text", "bos", "eos", "words"):
        given = [(_fact(model, what), name) for model, name in zip(models, names)]
        # A model read from ARPA or OpenFst may not know its tokenizer; models over tokens have no bos and eos.
        known = [(value, name) for value, name in given if value is not None or what in ("bos", "eos")]
        for value, name in known[1:]:
            if value != known[0][0]:
                mine, theirs = (value, known[0][0]) if what != "words" else _first_difference(value, known[0][0])
                raise ValueError(
                    f"{name}: expected {what} {theirs} as in {known[0][1]}, got {mine}; "
                    "only models over the same tokens can be merged"
                )


def _fact(model: NGram, what: str) -> Any:
    if what == "vocabulary size":
        return model.vocab_size
    return model.words if what == "words" else model.metadata.get(what)


def _first_difference(mine: Sequence[str], theirs: Sequence[str]) -> tuple[str, str]:
    at = next(i for i, (a, b) in enumerate(zip(mine, theirs)) if a != b)
    return f"{mine[at]!r}", f"{theirs[at]!r} (id {at})"


def _metadata(models: Sequence[Tables], mixture: Mixture) -> dict[str, Any]:
    """The metadata shared by the models, and how they were mixed."""
    shared: dict[str, Any] = {}
    for model in models:
        shared = {
            **{name: model.metadata[name] for name in ("tokenizer", "end_of_text") if name in model.metadata},
            **shared,
        }
    own = [
        {
            "weight": weight,
            "ngrams": list(model.ngrams),
            **{name: value for name, value in model.metadata.items() if name not in shared},
        }
        for model, weight in zip(models, mixture.weights)
    ]
    return {**shared, "interpolation": {"method": "log-linear" if mixture.log_linear else "linear", "models": own}}


def _listed(weights: Sequence[float]) -> str:
    return ", ".join(f"{weight:g}" for weight in weights) or "none"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Union:
    """The union of J models.

    levels    n-grams of orders 1..N of the longest model (`grams.py`)
    grams     for each model and each of its orders, the indices of its n-grams in `levels`: int64 [n], ascending
    contexts  the same for its contexts: int64 [C], ascending
    """

    levels: tuple[Grams, ...]
    grams: tuple[tuple[NDArray[np.int64], ...], ...]
    contexts: tuple[tuple[NDArray[np.int64], ...], ...]

    @classmethod
    def of(cls, models: Sequence[Tables]) -> Union:
        """The union of one or more models, with the largest of their vocabularies."""
        levels = [Grams.unigrams(max(model.vocab_size for model in models))]
        grams = [[np.arange(model.vocab_size)] for model in models]
        contexts = [[np.zeros(1, np.int64)] for _ in models]
        for order in range(2, max(model.order for model in models) + 1):
            having = [j for j, model in enumerate(models) if model.order >= order]
            own = [models[j].levels[order - 1] for j in having]
            keys, rows = _merged(
                [pack(contexts[j][-1][level.context_parent], level.context_token) for j, level in zip(having, own)]
            )
            for j, row in zip(having, rows):
                contexts[j].append(row)
            token_keys, rows = _merged(
                [pack(contexts[j][-1][level.context()], level.token) for j, level in zip(having, own)]
            )
            for j, row in zip(having, rows):
                grams[j].append(row)
            levels.append(_level(keys, token_keys))
        return cls(levels=tuple(levels), grams=tuple(map(tuple, grams)), contexts=tuple(map(tuple, contexts)))

    def costs(self, models: Sequence[Tables]) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Yields for orders 1..N each model's costs of all n-grams, float64 [J, n], and of backing off, float64 [J, C].

        The backoff cost of a context that a model does not know is 0. The models must have the same vocabulary.
        """
        below = np.empty((len(models), 0))
        for order, level in enumerate(self.levels, 1):
            backoff = np.zeros((len(models), level.contexts))
            cost = np.empty((len(models), len(level)))
            if order > 1:
                suffix = _core.suffixes(level.native, self.levels[order - 2].native, 0, level.contexts)
                context = level.context()
            for j, model in enumerate(models):
                if order > 1:
                    if order <= model.order:
                        backoff[j, self.contexts[j][order - 1]] = model.backoff[order - 2]
                    cost[j] = backoff[j][context] + below[j][suffix]
                if order <= model.order:
                    cost[j, self.grams[j][order - 1]] = model.cost[order - 1]
            yield cost, backoff
            below = cost


def _merged(keys: Sequence[NDArray[np.uint64]]) -> tuple[NDArray[np.uint64], list[NDArray[np.int64]]]:
    """Merges ascending arrays into one without duplicates; also returns the positions of each array's entries."""
    every = np.sort(np.concatenate(keys), kind="stable")  # merges ascending runs
    every = every[np.concatenate([np.ones(1, bool), every[1:] != every[:-1]])] if len(every) else every
    return every, [np.searchsorted(every, own) for own in keys]


def _level(contexts: NDArray[np.uint64], grams: NDArray[np.uint64]) -> Grams:
    """An order from its sorted keys (parent, first token) and (context, last token)."""
    begin = np.searchsorted(grams, pack(np.arange(len(contexts) + 1), np.zeros(1))).astype(np.uint64)
    token = np.uint64(MAX_VOCABULARY - 1)
    return Grams(
        context_token=(contexts & token).astype(np.uint32),
        context_parent=(contexts >> np.uint64(TOKEN_BITS)).astype(np.uint32),
        begin=begin,
        token=(grams & token).astype(np.uint32),
    )
