"""Rescores word lattices with n-gram models: the p best strings, exactly, each cost apart.

    cost = acoustic * acoustic cost + language * language cost
         + sum over models j of alpha_j * (-ln p_j) + word penalty * words

A model that the lattice was made with gets a negative weight: its scores are then taken out of the language costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore import _core
from rescore.lattice.checked import numbers, whole
from rescore.lattice.word_lattice import NOTHING, WordLattice
from rescore.lm.model.ngram import CAPITALS, UNK, NGram

MAX_WEIGHT = 1000.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Strings:
    """The n best distinct strings of a lattice, best first. Properties are computed when they are first asked for.

    cost   float64 [n], rescored
    paths  int64, the arcs of their cheapest paths, one after the other; that of string i ends before ends[i]
    """

    lattice: WordLattice
    cost: NDArray[np.float64]
    paths: NDArray[np.int64]
    ends: NDArray[np.int64]
    rescorer: LatticeRescorer

    def __repr__(self) -> str:
        return f"Strings({len(self)} of {self.lattice.name!r}, cost={self.cost.round(3).tolist()[:3]}..)"

    def __len__(self) -> int:
        return len(self.cost)

    @cached_property
    def arcs(self) -> list[NDArray[np.int64]]:
        """The arcs of each string's cheapest path."""
        return np.split(self.paths, self.ends[:-1])[: len(self)]

    @cached_property
    def tokens(self) -> list[NDArray[np.int32]]:
        """The tokens of each string."""
        found = (self.lattice.tokens[arcs] for arcs in self.arcs)
        return [tokens[tokens != NOTHING] for tokens in found]

    @cached_property
    def words(self) -> list[list[str]]:
        """The words of each string, decimal ids where the lattice has no words."""
        return [self.lattice.spelt(tokens.tolist()) for tokens in self.tokens]

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """The lattice's own costs of each string, acoustic and language, [n, 2]."""
        return np.reshape([self.lattice.costs[arcs].sum(axis=0, dtype=np.float64) for arcs in self.arcs], (-1, 2))

    @cached_property
    def models(self) -> NDArray[np.float64]:
        """-ln p of each string under each model, ends included, [n, J]."""
        return self.rescorer.scores(self.lattice, self.arcs)


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
        if wrong := [model for model in self.models if not isinstance(model, NGram)]:
            raise TypeError(f"models: expected n-gram models, as `load` returns them, got {type(wrong[0]).__name__}")
        given = numbers(alpha, "alpha", "iuf")
        if given.shape not in ((), (1,), (len(self.models),)):
            raise ValueError(f"alpha: expected one weight, or {len(self.models)}, got shape {list(given.shape)}")
        self.alpha = np.broadcast_to(given, len(self.models)).astype(np.float64)
        if (beyond := ~(abs(self.alpha) <= MAX_WEIGHT)).any():
            raise ValueError(f"alpha: expected weights from -1000 to 1000, got {self.alpha[beyond][0]}")
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
        graphs = [(one.first, one.targets, one.tokens, self._cost(one), self._labels(one)) for one in lattices]
        starts = np.tile(np.array(self._starts, np.uint32), (len(lattices), 1))
        cores = [model.core for model in self.models]
        found = _core.best_strings(cores, graphs, starts, self.alpha, paths=whole(p, "p"), threads=self.threads)
        return [
            Strings(lattice=one, cost=cost, paths=arcs, ends=first[1:], rescorer=self)
            for one, (cost, first, arcs) in zip(lattices, found)
        ]

    def _cost(self, lattice: WordLattice) -> NDArray[np.float64]:
        acoustic, language, penalty = self.weights.of(lattice)
        cost = lattice.costs @ np.array([acoustic, language]) + penalty * (lattice.tokens != NOTHING)
        if not (most := abs(cost).max(initial=0)) <= _core.MAX_WEIGHT:
            raise ValueError(
                f"{lattice.name}: expected arcs of at most {_core.MAX_WEIGHT:g} nats, got {most:g} with weights "
                f"{acoustic:g} of acoustic and {language:g} of language costs; give smaller ones"
            )
        return cost

    def _labels(self, lattice: WordLattice) -> NDArray[np.int32]:
        """The token that each model reads at every arc, [J, A]."""
        last = lattice.targets == lattice.states - 1
        labels = np.empty((len(self.models), lattice.arcs), np.int32)
        for place, (row, known, eos) in enumerate(zip(labels, self._numbers, self._ends)):
            row[:] = lattice.tokens
            if lattice.words is not None:
                if known is None:
                    raise ValueError(
                        f"models[{place}]: expected one with words, as lattices have, got one of token ids"
                    )
                row[:] = np.append(_ids(lattice.words, known), NOTHING)[lattice.tokens]  # NOTHING is the last place
            row[last] = eos
        return labels

    def scores(self, lattice: WordLattice, paths: Sequence[NDArray[np.int64]]) -> NDArray[np.float64]:
        """-ln p of paths of a lattice under each model, [n, J]."""
        found = np.empty((len(paths), len(self.models)))
        for column, model, start, labels in zip(found.T, self.models, self._starts, self._labels(lattice)):
            texts = [labels[arcs] for arcs in paths]
            texts = [text[text != NOTHING] for text in texts]
            places = np.cumsum([0, *map(len, texts)])
            read = np.concatenate([*texts, np.zeros(0, np.int32)])
            paid, _ = model.core.score(read, places, np.full(len(texts), start, np.uint32))
            column[:] = [part.sum(dtype=np.float64) for part in np.split(paid, places[1:-1])][: len(texts)]
        return found


def _marks(model: NGram) -> tuple[int | None, int]:
    """The token before a string, None for none; and the one that ends it, or NOTHING."""
    bos, eos = model.metadata.get("bos"), model.metadata.get("eos")
    if isinstance(bos, int) and isinstance(eos, int):
        return bos, eos
    end_of_text = model.end_of_text
    return (None, NOTHING) if end_of_text is None else (end_of_text, end_of_text)


def _ids(words: Sequence[str], known: dict[str, int]) -> NDArray[np.int32]:
    """The ids of a lattice's words in a model."""
    unknown = known.get(UNK, known.get(CAPITALS))
    found = [known.get(word, unknown) for word in words]
    if None in found:
        raise ValueError(f"word {words[found.index(None)]!r}: not in the model, which has no <unk>")
    return np.array(found, np.int32)
