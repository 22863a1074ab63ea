"""The twin of the core's check: reconstructs the contexts of an automaton from its arcs and checks its states.

An arc hw whose next state has a longer context than h leads to the state hw. By induction over the lengths of contexts
it then suffices to compare each n-gram hw with h'w:

    hw is a state:      its backoff state is the next state of h'w
    hw is not a state:  its next state is that of h'w
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rescore.lm.model.compile import Arrays
from rescore.lm.model.grams import pack


class Contexts:
    """An automaton under check.

    The checks must run in order, as each relies on those before it. A check returns a finding as text, or raises
    ValueError naming the first wrong state or n-gram.
    """

    def __init__(self, arrays: Arrays, *, order: int, words: Sequence[str] | None = None) -> None:
        """arrays: entries must be in range. words: for messages."""
        self.arrays, self.order, self.words = arrays, order, words
        self.begin = self.arrays.arc_begin.astype(np.int64)
        states = len(self.begin) - 1
        self.first = np.array([0, 1])  # of the states of each length, and one past the last
        self.source, self.last = np.zeros(states, np.int64), np.zeros(states, np.int64)  # h and w of each state hw
        self.suffix: list[NDArray[np.int64]] = []  # for contexts of each length >= 1, the arc h'w of each arc hw

    def check_states(self) -> str:
        """States are in order of the length of their contexts, at most N - 1."""
        shorter, order = self.arrays.backoff_state.astype(np.int64), self.order
        _refuse(
            shorter[1:] > np.arange(len(shorter) - 1),
            lambda at: f"state {at + 1}: expected to back off to one before it, got {shorter[at + 1]}",
        )
        _refuse(
            shorter[1:] < shorter[:-1],
            lambda at: (
                f"state {at + 1}: backs off to {shorter[at + 1]}, the state before it to {shorter[at]}; "
                "expected states by length and backoff state"
            ),
        )
        first = [0, 1]
        while first[-1] < len(shorter):
            first.append(int(np.searchsorted(shorter[1:], first[-1])) + 1)
        if len(first) - 1 > order:
            raise ValueError(f"expected contexts of at most {order - 1} tokens, got {len(first) - 2}")
        self.first = np.array(first)
        return ", ".join(f"{number:,}" for number in np.diff(self.first).tolist()) + " by length"

    def check_contexts(self) -> str:
        """Each context is an n-gram, the only one that leads to it."""
        for length in (0, *self.lengths):
            self._find_longer(length)
        return "each is an n-gram, the only one that leads to it"

    def _find_longer(self, length: int) -> None:
        """Finds the contexts of length + 1 tokens."""
        low, high = self.first[length + 1], self.first[min(length + 2, len(self.first) - 1)]
        state, arcs = self.arcs(length)
        after = self.arrays.arc_next[arcs].astype(np.int64)
        _refuse(
            after >= high,
            lambda at: (
                f"n-gram {arcs.start + at}: expected to lead to a context of its own tokens, got state {after[at]}, "
                "a longer one"
            ),
        )
        extends = np.flatnonzero(after >= low)
        reached = np.bincount(after[extends] - low, minlength=high - low)
        _refuse(
            reached != 1,
            lambda at: (
                f"state {low + at}: expected one n-gram of order {length + 1} that leads to it, got {reached[at]}"
            ),
        )
        self.source[after[extends]] = state[extends]
        self.last[after[extends]] = self.arrays.arc_token[arcs][extends]

    def check_order(self) -> str:
        """States of a length are in order of the context read backwards: by backoff state, then by the first token."""
        oldest = self.last.copy()
        for length in self.lengths[1:]:
            own = slice(self.first[length], self.first[length + 1])
            oldest[own] = oldest[self.source[own]]
        keys = pack(self.arrays.backoff_state, oldest)[1:]
        _refuse(
            keys[1:] <= keys[:-1],
            lambda at: (
                f"state {at + 2}: expected its context {self.spell(at + 2)} to come after that of the state before it, "
                f"{self.spell(at + 1)}"
            ),
        )
        return "by length, then read backwards"

    def check_suffixes(self) -> str:
        """For each n-gram hw of order 2 or more, h'w is an n-gram."""
        for length in self.lengths:
            (state, arcs), (shorter, below) = self.arcs(length), self.arcs(length - 1)
            wanted = pack(self.arrays.backoff_state[state], self.arrays.arc_token[arcs])
            there = pack(shorter, self.arrays.arc_token[below])
            found = np.minimum(np.searchsorted(there, wanted), len(there) - 1)
            self._refuse_missing(there[found] != wanted, length)
            self.suffix.append(found + below.start)
        return "every n-gram's suffix is in the model"

    def check_backoffs(self) -> str:
        """A context backs off to itself without its first token."""
        for length in self.lengths:
            after, expected = self._next(length - 1)
            longer = after >= self.first[length]
            self._refuse_backoffs(after[longer], expected[longer])
        return "the context without its first token"

    def check_next(self) -> str:
        """An n-gram leads to its longest suffix that is a state."""
        for length in (0, *self.lengths):
            after, expected = self._next(length)
            self._refuse_next(length, (after < self.first[length + 1]) & (after != expected), after, expected)
        return "the longest suffix that is a state"

    @property
    def lengths(self) -> range:
        """The lengths of contexts, without the empty one."""
        return range(1, len(self.first) - 1)

    def arcs(self, length: int) -> tuple[NDArray[np.int64], slice]:
        """The arcs of states with contexts of a length: the state of each, and their slice of all arcs."""
        low, high = self.first[length : length + 2]
        return np.repeat(np.arange(low, high), np.diff(self.begin[low : high + 1])), slice(
            int(self.begin[low]), int(self.begin[high])
        )

    def spell(self, state: int) -> str:
        """A context as ids, and as text if the model has words."""
        return self._text(self._tokens(state))

    def _tokens(self, state: int) -> list[int]:
        tokens: list[int] = []
        while state:
            tokens.append(int(self.last[state]))
            state = self.source[state]
        return tokens[::-1]

    def _text(self, tokens: list[int]) -> str:
        ids, words = " ".join(map(str, tokens)), self.words
        return f"({ids})" if words is None or not tokens else f"({ids}), {''.join(words[token] for token in tokens)!r},"

    def _gram(self, length: int, at: int) -> str:
        state, arcs = self.arcs(length)
        return self._text([*self._tokens(state[at]), int(self.arrays.arc_token[arcs.start + at])])

    def _next(self, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For the n-grams hw with h of a length: their next states, and those of h'w (the root if h is empty)."""
        _, arcs = self.arcs(length)
        after = self.arrays.arc_next[arcs].astype(np.int64)
        return after, self.arrays.arc_next[self.suffix[length - 1]].astype(np.int64) if length else np.zeros_like(after)

    def _refuse_missing(self, wrong: NDArray[np.bool_], length: int) -> None:
        def shorter(at: int) -> str:
            return self.spell(self.arrays.backoff_state[self.arcs(length)[0][at]])

        _refuse(
            wrong,
            lambda at: (
                f"n-gram {self._gram(length, at)}: expected its last token to follow {shorter(at)} too, got no n-gram"
            ),
        )

    def _refuse_backoffs(self, state: NDArray[np.int64], expected: NDArray[np.int64]) -> None:
        got = self.arrays.backoff_state[state]
        _refuse(
            got != expected,
            lambda at: (
                f"context {self.spell(state[at])}: expected to back off to {self.spell(expected[at])}, "
                f"got {self.spell(got[at])}"
            ),
        )

    def _refuse_next(
        self, length: int, wrong: NDArray[np.bool_], got: NDArray[np.int64], expected: NDArray[np.int64]
    ) -> None:
        _refuse(
            wrong,
            lambda at: (
                f"n-gram {self._gram(length, at)}: expected to lead to {self.spell(expected[at])}, "
                f"got {self.spell(got[at])}"
            ),
        )


def fault(arrays: Arrays, *, order: int, words: Sequence[str] | None = None) -> str | None:
    """What is wrong with the states of an automaton, None if nothing is. Entries must be in range."""
    contexts = Contexts(arrays, order=order, words=words)
    checks = (contexts.check_states, contexts.check_contexts, contexts.check_order, contexts.check_suffixes)
    try:
        for check in (*checks, contexts.check_backoffs, contexts.check_next):
            check()
    except ValueError as error:
        return str(error)
    return None


def _refuse(wrong: NDArray[np.bool_], message: Callable[[int], str]) -> None:
    """Raises ValueError with the message about the first wrong entry."""
    if wrong.any():
        raise ValueError(message(int(wrong.argmax())))
