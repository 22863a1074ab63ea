"""Rescores word lattices with n-gram models: the p best strings, exactly, each cost apart.

    cost = acoustic * acoustic cost + language * language cost
         + sum over models j of alpha_j * (-ln p_j) + word penalty * words

A model that the lattice was made with gets a negative weight: its scores are then taken out of the language costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.checked import numbers, whole
from rescore.lattice.short_repr import short_repr
from rescore.lattice.word_lattice import NOTHING, WordLattice
from rescore.lm.model.arpa import CAPITALS, UNK
from rescore.lm.model.ngram import NGram

MAX_WEIGHT = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Strings:
    """The n best distinct strings of a lattice, best first.

    tokens    int32 of each, as in the lattice
    words     of each, decimal ids where the lattice has no words
    cost      float64 [n], rescored
    acoustic, language   float64 [n], the lattice's own costs of its cheapest path
    models    float64 [n, J], -ln p of each model, ends included
    """

    tokens: list[NDArray[np.int32]]
    words: list[list[str]]
    cost: NDArray[np.float64]
    acoustic: NDArray[np.float64]
    language: NDArray[np.float64]
    models: NDArray[np.float64]

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights of a lattice's costs, from -1000 to 1000.

    acoustic      None: 1 / the lattice's own `lm_scale`
    language      of the lattice's own language costs
    word_penalty  nats for each word; None: the lattice's own over its `lm_scale`
    """

    acoustic: float | None = None
    language: float = 0.0
    word_penalty: float | None = None

    def __post_init__(self) -> None:
        for name in ("acoustic", "language", "word_penalty"):
            if not -MAX_WEIGHT <= (getattr(self, name) or 0.0) <= MAX_WEIGHT:
                raise ValueError(f"{name}: expected -1000 to 1000, got {getattr(self, name)}")

    def of(self, lattice: WordLattice) -> tuple[float, float, float]:
        """The three weights."""
        own = 1 / lattice.lm_scale
        penalty = lattice.word_penalty * own if self.word_penalty is None else self.word_penalty
        return own if self.acoustic is None else self.acoustic, self.language, penalty


class LatticeRescorer:
    """N-gram models, and how they are weighed against the costs of word lattices.

    models   one or several; none: the lattice's own costs
    alpha    weights of the models' costs, one for all or [J], from -1000 to 1000
    weights  of the lattice's costs
    ends     whether strings are whole sentences or documents, which the models begin and end; False: fragments
    threads  for several lattices

    Words of a lattice are looked up in each model, unknown ones are its <unk>. Lattices without words have the models'
    ids.
    """

    def __init__(
        self,
        models: NGram | Sequence[NGram] = (),
        *,
        alpha: ArrayLike = 1.0,
        weights: Weights | None = None,
        ends: bool = True,
        threads: int = 1,
    ):
        self.models = (models,) if isinstance(models, NGram) else tuple(models)
        self.weights, self.threads = weights or Weights(), whole(threads, "threads")
        self.alpha = np.broadcast_to(numbers(alpha, "alpha", "iuf"), len(self.models)).astype(np.float64)
        if (wrong := ~(abs(self.alpha) <= MAX_WEIGHT)).any():
            raise ValueError(f"alpha: expected weights from -1000 to 1000, got {self.alpha[wrong][0]}")
        self._numbers = [
            None if model.words is None else {word: i for i, word in enumerate(model.words)} for model in self.models
        ]
        marks = [_marks(model) if ends else (None, NOTHING) for model in self.models]
        self._starts = [model.start([] if bos is None else [bos]) for model, (bos, _) in zip(self.models, marks)]
        self._ends = [eos for _, eos in marks]

    def weighed(self, weights: Weights) -> LatticeRescorer:
        """This rescorer with other weights of the lattice's costs."""
        other = copy(self)
        other.weights = weights
        return other

    def paths(self, lattice: WordLattice, p: int = 16) -> Strings:
        """The p best distinct strings of a lattice: exact, ties broken by tokens."""
        return self.paths_of([lattice], p)[0]

    def paths_of(self, lattices: Sequence[WordLattice], p: int = 16) -> list[Strings]:
        """The p best distinct strings of each lattice."""
        labels = [self._labels(lattice) for lattice in lattices]
        graphs = [(one.first, one.targets, one.tokens, self._cost(one), own) for one, own in zip(lattices, labels)]
        starts = np.tile(np.array(self._starts, np.uint32), (len(lattices), 1))
        cores = [model.core for model in self.models]
        found = _core.best_strings(cores, graphs, starts, self.alpha, paths=whole(p, "p"), threads=self.threads)
        return [self._strings(*one) for one in zip(lattices, labels, found)]

    def _cost(self, lattice: WordLattice) -> NDArray[np.float64]:
        acoustic, language, penalty = self.weights.of(lattice)
        cost = lattice.costs @ np.array([acoustic, language])
        return cost + penalty * (lattice.tokens != NOTHING)

    def _labels(self, lattice: WordLattice) -> NDArray[np.int32]:
        """The token that each model reads at every arc, [J, A]."""
        last = lattice.targets == lattice.states - 1
        labels = np.empty((len(self.models), lattice.arcs), np.int32)
        for row, known, eos in zip(labels, self._numbers, self._ends):
            row[:] = lattice.tokens
            if lattice.words is not None:
                row[:] = np.append(_ids(lattice.words, known), NOTHING)[lattice.tokens]  # NOTHING is the last place
            row[last] = eos
        return labels

    def _strings(
        self,
        lattice: WordLattice,
        labels: NDArray[np.int32],
        found: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]],
    ) -> Strings:
        cost, first, arcs = found
        tokens = [own[own != NOTHING] for own in np.split(lattice.tokens[arcs], first[1:-1])][: len(cost)]
        own = np.add.reduceat(lattice.costs[arcs].astype(np.float64), first[:-1]) if len(cost) else np.zeros((0, 2))
        models = np.empty((len(cost), len(self.models)))
        for j, model in enumerate(self.models):
            read = labels[j][arcs] != NOTHING
            places = np.append(0, np.cumsum(read))[first]
            starts = np.full(len(cost), self._starts[j], np.uint32)
            paid, _ = model.core.score(labels[j][arcs][read], places, starts)
            sums = np.append(0, np.cumsum(paid, dtype=np.float64))[places]
            models[:, j] = np.diff(sums)
        return Strings(
            tokens=tokens,
            words=[lattice.spelt(one.tolist()) for one in tokens],
            cost=cost,
            acoustic=own[:, 0],
            language=own[:, 1],
            models=models,
        )


def _marks(model: NGram) -> tuple[int | None, int]:
    """The token before a string, None for none; and the one that ends it, or NOTHING."""
    bos, eos = model.metadata.get("bos"), model.metadata.get("eos")
    if isinstance(bos, int) and isinstance(eos, int):
        return bos, eos
    end_of_text = model.end_of_text
    return (None, NOTHING) if end_of_text is None else (end_of_text, end_of_text)


def _ids(words: Sequence[str], known: dict[str, int] | None) -> NDArray[np.int32]:
    """The ids of a lattice's words in a model."""
    if known is None:
        raise ValueError("model: expected one with words, as the lattice has words, got one of token ids")
    unknown = known.get(UNK, known.get(CAPITALS))
    found = [known.get(word, unknown) for word in words]
    if None in found:
        raise ValueError(f"word {words[found.index(None)]!r}: not in the model, which has no <unk>")
    return np.array(found, np.int32)
