"""Lattices of words or tokens of any shape, as recognisers of speech or handwriting and translators leave them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.lattice.checked import numbers
from rescore.lattice.sausage import PADDING, Sausage
from rescore.lattice.short_repr import short_repr

END = -1  # in place of a token: the string ends
MAX_COST = 1e6  # nats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WordLattice:
    """An acyclic deterministic lattice of S states and A arcs, in compressed rows: large and sparse, where a sausage is
    small and dense.

    States are in topological order. Strings lead from the first to the last one; since no two arcs of a state have the
    same token, they are its paths.

    first     int64 [S + 1], the arcs of state s are first[s] .. first[s + 1] - 1, ascending by token
    tokens    int32 [A], ids, or places in `words`; END (-1) ends a string, and its arc leads to the last state
    targets   int32 [A], states after the arc's own
    costs     float32 [A, 2], acoustic and language cost (translation's features in the first), at most 1e6 in magnitude
    words     of the tokens; None: tokens are ids of a model
    name      of the utterance
    lm_scale, word_penalty   weights that its maker used, beside acoustic costs: of language costs, and for each word
    """

    first: NDArray[np.int64]
    tokens: NDArray[np.int32]
    targets: NDArray[np.int32]
    costs: NDArray[np.float32]
    words: tuple[str, ...] | None = None
    name: str = ""
    lm_scale: float = 1.0
    word_penalty: float = 0.0

    __repr__ = short_repr

    @classmethod
    def from_arcs(
        cls,
        source: ArrayLike,
        tokens: ArrayLike,
        targets: ArrayLike,
        costs: ArrayLike,
        *,
        start: int = 0,
        final: dict[int, tuple[float, float]],
        **more: Any,
    ) -> WordLattice:
        """Builds a lattice from arcs [A] in any order, whose states may have any numbers.

        costs [A, 2]. final: the costs of states in which strings may end. States that `start` does not reach are left
        out. ValueError names a state on a cycle, or one with two arcs of a token (`determinised` makes one of them).
        """
        own = [numbers(array, name).astype(np.int64) for array, name in ((source, "source"), (targets, "targets"))]
        names, place = np.unique(np.concatenate([[start], *own, np.array(list(final), np.int64)]), return_inverse=True)
        begin, to = np.split(place[1:], [len(own[0])])
        to, ends = np.split(to, [len(own[1])])
        last = len(names)  # one state more, behind all ends
        begin, to = np.append(begin, ends), np.append(to, np.full(len(ends), last))
        token = np.append(numbers(tokens, "tokens").astype(np.int64), np.full(len(ends), END))
        cost = np.concatenate([np.reshape(costs, (-1, 2)), np.reshape(list(final.values()), (-1, 2))])
        if (wrong := ~(abs(cost) <= MAX_COST)).any():
            raise ValueError(f"costs: expected at most {MAX_COST:g} nats in magnitude, got {cost[wrong][0]}")
        number = np.full(last + 1, -1)
        order = [state for state in _topological(int(place[0]), begin, to, names) if state != last] + [last]
        number[order] = np.arange(len(order))
        kept = np.flatnonzero(number[begin] >= 0)
        kept = kept[np.lexsort((token[kept], number[begin[kept]]))]
        states, labels = number[begin[kept]], token[kept]
        if (twice := (states[1:] == states[:-1]) & (labels[1:] == labels[:-1])).any():
            at = kept[int(twice.argmax())]
            raise ValueError(f"state {names[begin[at]]}: expected one arc with token {token[at]}, got two")
        return cls(
            first=np.searchsorted(states, np.arange(len(order) + 1)).astype(np.int64),
            tokens=labels.astype(np.int32),
            targets=number[to[kept]].astype(np.int32),
            costs=np.ascontiguousarray(cost[kept], np.float32),
            **more,
        )

    @classmethod
    def from_sausage(cls, sausage: Sausage) -> WordLattice:
        """The lattice of a single sausage [T, K], whose costs are acoustic."""
        slot, rank = np.nonzero(sausage.ids[: int(sausage.lengths)] != PADDING)
        cost = np.stack([sausage.cost[slot, rank], np.zeros(len(slot))], axis=1)
        final = {int(sausage.lengths): (0.0, 0.0)}
        return cls.from_arcs(slot, sausage.ids[slot, rank], slot + 1, cost, final=final)

    @property
    def states(self) -> int:
        """S."""
        return len(self.first) - 1

    @property
    def arcs(self) -> int:
        """A, the ends of strings included."""
        return len(self.tokens)

    def spelt(self, tokens: Sequence[int]) -> list[str]:
        """The words of tokens, END left out; decimal ids without words."""
        return [str(token) if self.words is None else self.words[token] for token in tokens if token != END]


def _topological(
    start: int, source: NDArray[np.int64], target: NDArray[np.int64], names: NDArray[np.int64]
) -> list[int]:
    """The states that `start` reaches, each before those that its arcs lead to. ValueError names a state on a cycle."""
    order = np.argsort(source, kind="stable")
    following = target[order].tolist()
    first = np.searchsorted(source[order], np.arange(len(names) + 2)).tolist()
    at, done, path, on_path, seen = first[:-1], list[int](), [start], {start}, {start}
    while path:
        state = path[-1]
        if at[state] == first[state + 1]:
            done.append(path.pop())
            on_path.discard(state)
            continue
        to = following[at[state]]
        at[state] += 1
        if to in on_path:
            raise ValueError(f"state {names[to]}: expected a lattice without cycles, got one through it")
        if to not in seen:
            seen.add(to)
            on_path.add(to)
            path.append(to)
    return done[::-1]
