"""Structures: automata over token ids that say which tokens may follow a text (docs/use/structure.md).

A structure bounds the target's distribution, and the q of drafts: after a text in state s both are restricted to the
tokens A(s) and renormalised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.lattice.checked import numbers

if TYPE_CHECKING:
    from rescore.lattice.spelling import Spelling

_MOST_TOKEN = np.iinfo(np.int32).max


class Matcher(Protocol):
    """A state of an automaton over token ids. accepting: whether the text may end here."""

    @property
    def accepting(self) -> bool: ...

    @property
    def free(self) -> bool:
        """Whether any token may follow, and the text may end."""
        return False

    @property
    def complete(self) -> bool:
        """Whether the text may end here and nothing may follow."""
        return False

    def run(self) -> Sequence[int]:
        """Tokens that must follow, one after another, as far as they are known at once: no end tokens. Empty where
        several may follow, or the text may end.
        """
        return ()

    def write(self, words: NDArray[np.uint32]) -> None:
        """Sets the bits of the tokens that may follow, of words that are 0; end tokens are not the matcher's."""

    def after(self, *tokens: int) -> Matcher:
        """The state after tokens that may follow, one after another; this one stays as it is."""

    def begun(self, text: bytes, spelling: Spelling) -> Matcher | None:
        """The state after text that a token brings along, in whatever tokens; None if it may not follow, or the
        automaton does not read text.
        """
        return None


Copies = Callable[[NDArray[np.int32]], Sequence[NDArray[np.int32]]]
"""Of a prompt int32 [m], what a text may copy from it, each int32 [n], in the tokens that it takes there."""


class State:
    """A state of a structure after some text, in a vocabulary of V ids. Masks and successors are computed once.

    ends    the tokens that end a text, allowed where the structure accepts
    copies  what drafts may take from the prompt; by default nothing
    """

    __slots__ = ("_allowed", "_ends", "_matcher", "_next", "_run", "_unread", "_vocab_size", "copies")

    def __init__(self, matcher: Matcher | None, vocab_size: int, ends: Collection[int], copies: Copies = lambda _: ()):
        self._matcher, self._vocab_size, self._ends, self.copies = matcher, vocab_size, frozenset(ends), copies
        self._unread: tuple[int, ...] = ()  # of a run, which the matcher reads at its end
        self._run: tuple[int, ...] | None = None
        self._next: dict[int, State] = {}
        self._allowed: NDArray[np.uint32] | None = None

    @property
    def matcher(self) -> Matcher | None:
        """None after the end of the text."""
        if self._unread and self._matcher is not None:
            self._matcher, self._unread = self._matcher.after(*self._unread), ()
        return self._matcher

    @property
    def accepting(self) -> bool:
        """Whether the text may end here; false after its end."""
        return not self._run and (matcher := self.matcher) is not None and matcher.accepting

    @property
    def ended(self) -> bool:
        """Whether an end token has ended the text."""
        return self._matcher is None

    @property
    def free(self) -> bool:
        """Whether any token may follow, so that no mask is needed."""
        return not self._run and (matcher := self.matcher) is not None and matcher.free

    @property
    def run(self) -> tuple[int, ...]:
        """Tokens that must follow, one after another, as far as they are known without masks."""
        if self._run is None:
            run = () if (matcher := self.matcher) is None else tuple(matcher.run())
            beyond = next((at for at, token in enumerate(run) if token >= self._vocab_size), len(run))
            self._run = run[:beyond]
        return self._run

    def allowed(self) -> NDArray[np.uint32]:
        """The tokens that may follow, a bit each, uint32 [ceil(V / 32)]; none after the end of the text."""
        if self._allowed is None:
            self._allowed = words = np.zeros((self._vocab_size + 31) // 32, np.uint32)
            if self.run:
                words[self.run[0] // 32] = 1 << self.run[0] % 32
            elif (matcher := self.matcher) is not None:
                matcher.write(words)
                ends, others = end_bits(self._ends, self._vocab_size)
                words &= others
                if matcher.accepting:
                    words |= ends
            words.setflags(write=False)
        return self._allowed

    def mask(self) -> NDArray[np.bool_]:
        """The same as bool [V]."""
        return np.unpackbits(self.allowed().view(np.uint8), count=self._vocab_size, bitorder="little").view(bool)

    @property
    def forced(self) -> bool:
        """Whether a single token may follow."""
        return bool(self.run) or int(np.unpackbits(self.allowed().view(np.uint8)).sum()) == 1

    def allows(self, token: int) -> bool:
        if self.run:
            return token == self.run[0]
        return 0 <= token < self._vocab_size and bool(self.allowed()[token // 32] >> np.uint32(token % 32) & 1)

    def step(self, token: int) -> State:
        """The state after a token. ValueError unless it is allowed."""
        state = self._next.get(token)
        if state is None:
            if not self.allows(token):
                raise ValueError(f"structure: expected a token that is allowed after the text, got {token}")
            state = self._next[token] = State(self._matcher, self._vocab_size, self._ends, self.copies)
            if self.run:
                state._unread, state._run = (*self._unread, token), self.run[1:] or None
            elif self._matcher is not None:
                state._matcher = None if token in self._ends else self._matcher.after(token)
        return state

    def after(self, tokens: Iterable[int]) -> State:
        """The state after several tokens; ValueError as `step`."""
        state = self
        for token in tokens:
            state = state.step(token)
        return state


@lru_cache(maxsize=16)
def end_bits(ends: frozenset[int], vocab_size: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """The bits of the ids in `ends`, and of all other ids below V."""
    bits = bits_of(ends, vocab_size)
    return bits, bits_of(range(vocab_size), vocab_size) & ~bits


def bits_of(tokens: Collection[int] | NDArray[np.int32], vocab_size: int) -> NDArray[np.uint32]:
    """The bits of ids, uint32 [ceil(V / 32)]; those from V on are left out."""
    words, ids = np.zeros((vocab_size + 31) // 32, np.uint32), np.fromiter(tokens, np.int64, len(tokens))
    ids = ids[ids < vocab_size]
    np.bitwise_or.at(words, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))
    return words


class Bounds:
    """What the search of a batch of trees may propose: `allowed` of `_core.best_tree`. None: a text without bounds."""

    def __init__(self, states: Sequence[State | None]):
        self._roots = states
        self._asked: list[list[State | None]] = [[] for _ in states]

    def __call__(
        self, rows: Sequence[int], before: Sequence[int], passed: Sequence[int], tokens: Sequence[int]
    ) -> list[tuple[int, ...] | NDArray[np.uint32] | None]:
        """What may follow prefixes of rows: the run of each, or the bits of tokens; None: any.

        before: the number of the prefix that was asked for before in the row, on the way to this one; passed: how many
        tokens of its run follow; tokens: the token after these, -1 for the empty prefix
        """
        answers = []
        for row, number, run, token in zip(rows, before, passed, tokens):
            asked = self._asked[row]
            state = asked[number] if token >= 0 else self._roots[row]
            if state and token >= 0:
                state = state.after(state.run[:run]).step(token)
            asked.append(state)
            answers.append((state.run or (None if state.free else state.allowed())) if state else None)
        return answers


class Structure(Protocol):
    def start(self, vocab_size: int, ends: Collection[int]) -> State:
        """The state before the first token of a text, for a target of `vocab_size` ids whose texts end with `ends`."""


Prompt = Sequence[int] | NDArray[np.int32]


def begin(structure: Structure, vocab_size: int, ends: Collection[int], prompt: Prompt) -> State:
    """The state before the first token of a text behind a prompt, which some structures read (`After`). Ends that are
    no ids of the vocabulary are left out, as -1, which stands for none; ValueError if no other is given.
    """
    known = frozenset(token for token in ends if 0 <= token < vocab_size)
    if ends and not known:
        raise ValueError(f"structure: expected an end token in 0..{vocab_size - 1}, got {sorted(ends)}")
    behind = getattr(structure, "behind", None)
    return (behind(prompt) if behind else structure).start(vocab_size, known)


class Continued:
    """A structure whose text has begun with some tokens. ValueError, when it starts, if they are not allowed."""

    def __init__(self, structure: Structure, tokens: Sequence[int]):
        self._structure, self.tokens = structure, tuple(tokens)

    def behind(self, prompt: Prompt) -> Continued:
        """prompt: with these tokens at its end."""
        behind = getattr(self._structure, "behind", None)
        before = prompt[: len(prompt) - len(self.tokens)]
        return Continued(behind(before), self.tokens) if behind else self

    def start(self, vocab_size: int, ends: Collection[int]) -> State:
        return self._structure.start(vocab_size, ends).after(self.tokens)


class Acceptor:
    """A deterministic finite acceptor over token ids: arcs (state, token, next state), its start and final states.

    States from which no final one is reached are left out, as by OpenFst's `connect`. A `Rescorer` composes lattices
    with it: whatever its paths spell begins a text of the acceptor. ValueError if it accepts nothing.
    """

    def __init__(self, arcs: Iterable[tuple[int, int, int]], *, start: int = 0, final: Collection[int]):
        rows = numbers([*arcs], "arcs").astype(np.int64).reshape(-1, 3)
        final = numbers([*final], "final").tolist()
        rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
        state, token, to = rows.T
        for wrong in np.flatnonzero((token < 0) | (token > _MOST_TOKEN))[:1]:
            raise ValueError(f"acceptor: state {state[wrong]}: expected token ids from 0, got {token[wrong]}")
        again = (np.diff(state) == 0) & (np.diff(token) == 0)
        for wrong in np.flatnonzero(again & (np.diff(to) != 0))[:1]:
            raise ValueError(
                f"acceptor: state {state[wrong]}: expected one arc for each token, got two for {token[wrong]}; "
                "determinise it"
            )
        rows = rows[np.append(True, ~again)[: len(rows)]]
        useful = _leading_to(final, rows)
        if start not in useful:
            raise ValueError(f"acceptor: expected a final state to be reachable from the start state {start}, got none")
        names = sorted(useful)
        rows = rows[np.isin(rows[:, 0], names) & np.isin(rows[:, 2], names)]
        state, token, to = np.searchsorted(names, rows[:, 0]), rows[:, 1], np.searchsorted(names, rows[:, 2])
        first = np.searchsorted(state, np.arange(len(names) + 1)).astype(np.uint64)
        self.core = _core.Acceptor(
            first, token.astype(np.int32), to.astype(np.uint32), start=int(np.searchsorted(names, start))
        )
        self._final = frozenset(np.searchsorted(names, [*useful.intersection(final)]).tolist())

    @classmethod
    def of_fst(cls, fst: Any) -> Acceptor:
        """Of a `pywrapfst.Fst` whose labels are token ids + 1 (0 is epsilon), as those of `NGram.to_fst`.

        ValueError unless it is a deterministic acceptor without epsilons; weights are ignored.
        """
        arcs = []
        for state in fst.states():
            for arc in fst.arcs(state):
                if arc.ilabel != arc.olabel or arc.ilabel == 0:
                    raise ValueError(
                        f"fst: state {state}: expected an acceptor without epsilons, got an arc {arc.ilabel}:"
                        f"{arc.olabel}; call pywrapfst's rmepsilon and determinize"
                    )
                arcs.append((state, arc.ilabel - 1, arc.nextstate))
        nowhere = type(fst.final(fst.start())).zero(fst.weight_type())
        return cls(arcs, start=fst.start(), final=[state for state in fst.states() if fst.final(state) != nowhere])

    def start(self, vocab_size: int, ends: Collection[int]) -> State:
        return State(_Place(self, self.core.start), vocab_size, frozenset(ends))


def _leading_to(final: Collection[int], arcs: NDArray[np.int64]) -> set[int]:
    """The states from which one of the final states is reached."""
    before: dict[int, list[int]] = {}
    for state, _, to in arcs.tolist():
        before.setdefault(to, []).append(state)
    found, open_ = set(final), [*final]
    while open_:
        new = [state for state in before.get(open_.pop(), ()) if state not in found]
        found.update(new)
        open_ += new
    return found


class _Place(Matcher):
    """States of an acceptor after a text: one, but several where text was spelt in several ways."""

    def __init__(self, acceptor: Acceptor, *states: int):
        self._acceptor, self._states = acceptor, states

    @property
    def accepting(self) -> bool:
        return not self._acceptor._final.isdisjoint(self._states)

    @property
    def complete(self) -> bool:
        return self.accepting and not any(len(self._acceptor.core.tokens(state)) for state in self._states)

    def write(self, words: NDArray[np.uint32]) -> None:
        for state in self._states:
            words |= bits_of(self._acceptor.core.tokens(state), 32 * len(words))

    def after(self, *tokens: int) -> _Place:
        return reduce(_Place._next, tokens, self)

    def _next(self, token: int) -> _Place:
        return _Place(self._acceptor, *{self._acceptor.core.next(state, token) for state in self._states} - {-1})

    def begun(self, text: bytes, spelling: Spelling) -> _Place | None:
        reached: list[set[int]] = [{*self._states}, *(set[int]() for _ in text)]
        for at, states in enumerate(reached[:-1]):
            for length, tokens in spelling.first(text[at:]) if states else ():
                place = _Place(self._acceptor, *states)
                reached[at + length].update(*(place._next(token)._states for token in tokens))
        return _Place(self._acceptor, *reached[-1]) if reached[-1] else None
