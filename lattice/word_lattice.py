"""Lattices of words or tokens of any shape, as recognisers of speech or handwriting and translators leave them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescore.lattice.checked import MOST, numbers
from rescore.lattice.sausage import PADDING, Sausage
from rescore.lattice.short_repr import short_repr

NOTHING = -1  # in place of a token: the arc reads nothing. An arc to the last state does not, and ends the string
MAX_COST = 1e6  # nats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WordLattice:
    """An acyclic lattice of S states and A arcs, in compressed rows: large and sparse, where a sausage is small and
    dense.

    States are in topological order; strings lead from the first to the last one. A string may have several paths, of
    which the cheapest counts.

    first     int64 [S + 1], the arcs of state s are first[s] .. first[s + 1] - 1, ascending by token
    tokens    int32 [A], ids, or places in `words`; NOTHING (-1) is not part of strings
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

    def __post_init__(self) -> None:
        if not (0 < self.lm_scale < math.inf and math.isfinite(self.word_penalty)):
            got = f"lm_scale {self.lm_scale}, word_penalty {self.word_penalty}"
            raise ValueError(f"{self.name or 'weights'}: expected finite ones, and lm_scale above 0, got {got}")
        if self.words is not None and (most := self.tokens.max(initial=NOTHING)) >= len(self.words):
            raise ValueError(f"tokens: expected places in words, below {len(self.words)}, got {most}")

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

        costs [A, 2]; more: the other fields. final: the costs of states in which strings may end. Arcs and ends of
        infinite cost are left out, and so are states that `start` does not reach. ValueError names a state on a cycle.
        """
        arrays = {"source": source, "tokens": tokens, "targets": targets}
        begin, token, to = (numbers(array, name).astype(np.int64) for name, array in arrays.items())
        ends = np.array(list(final), np.int64)
        given = (numbers(costs, "costs", "iuf"), numbers(list(final.values()), "final", "iuf"))
        cost, of_ends = (np.reshape(one, (0, 2)) if not one.size else one for one in given)
        shapes = [one.shape for one in (begin, token, to, cost, of_ends)]
        if shapes != [(len(begin),)] * 3 + [(len(begin), 2), (len(ends), 2)]:
            raise ValueError(
                "expected source, tokens and targets [A], costs [A, 2] and a pair of costs for each end, got "
                f"{', '.join(map(str, map(list, shapes)))}"
            )
        last = max([start, *ends.tolist(), int(begin.max(initial=0)), int(to.max(initial=0))]) + 1  # behind all ends
        begin, to = np.append(begin, ends), np.append(to, np.full(len(ends), last))
        token, cost = np.append(token, np.full(len(ends), NOTHING)), np.concatenate([cost, of_ends])
        there = ~np.isposinf(cost).any(axis=1)
        begin, to, token, cost = (one[there] for one in (begin, to, token, cost))
        if not (to == last).any():
            raise ValueError("expected a state in which strings may end, got none")
        if (wrong := (token < NOTHING) | (token > MOST)).any():
            raise ValueError(f"tokens: expected {NOTHING}..{MOST}, got {token[wrong][0]}")
        if (wrong := ~(abs(cost) <= MAX_COST)).any():
            raise ValueError(f"costs: expected at most {MAX_COST:g} nats in magnitude, got {cost[wrong][0]}")
        following: dict[int, list[int]] = defaultdict(list)
        for state, after in zip(begin.tolist(), to.tolist()):
            following[state].append(after)
        number = {state: place for place, state in enumerate(s for s in topological(start, following) if s != last)}
        number[last] = len(number)
        begin, to = (np.array([number.get(state, -1) for state in one.tolist()], np.int64) for one in (begin, to))
        kept = np.flatnonzero(begin >= 0)
        kept = kept[np.lexsort((token[kept], begin[kept]))]
        states = begin[kept]
        return cls(
            first=np.searchsorted(states, np.arange(len(number) + 1)).astype(np.int64),
            tokens=token[kept].astype(np.int32),
            targets=to[kept].astype(np.int32),
            costs=np.ascontiguousarray(cost[kept], np.float32),
            **more,
        )

    @classmethod
    def empty(cls, name: str) -> WordLattice:
        """A lattice without strings: Kaldi writes one for an utterance whose beam ran dry."""
        nothing = np.empty(0, np.int32)
        return cls(
            first=np.zeros(3, np.int64), tokens=nothing, targets=nothing, costs=np.empty((0, 2), np.float32), name=name
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
        """The words of tokens, NOTHING left out; decimal ids without words."""
        return [str(token) if self.words is None else self.words[token] for token in tokens if token != NOTHING]


def topological(start: int, following: Mapping[int, Sequence[int]]) -> list[int]:
    """The states that `start` reaches, each before those that follow it. ValueError names a state on a cycle."""
    done: list[int] = []
    path, on_path, seen = [(start, iter(following.get(start, ())))], {start}, {start}
    while path:
        state, rest = path[-1]
        if (to := next(rest, None)) is None:
            done.append(state)
            path.pop()
            on_path.discard(state)
        elif to in on_path:
            raise ValueError(f"state {to}: expected a lattice without cycles, got one through it")
        elif to not in seen:
            seen.add(to)
            on_path.add(to)
            path.append((to, iter(following.get(to, ()))))
    return done[::-1]
