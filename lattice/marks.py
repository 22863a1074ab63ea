"""Structures that begin behind a mark in free text, such as the end of a model's reasoning (docs/use/structure.md)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.spelling import SPACE, Spelling
from rescore.lattice.structure import Matcher, Prompt, State, Structure, begin, bits_of

SKIPPED = 8  # tokens of white space behind a mark, at most: a model may like it better than what must follow
READ_BACK = 4096  # tokens of a prompt, its last ones, in which a mark is looked for


class After:
    """A structure that begins behind a mark; what is in front of it is free text.

    mark      text, or token ids. A token may hold the end of a text and the beginning of the structure's
    spelling  of the target's ids; may be left out where the mark is of ids and exact
    exact     whether the structure begins at once; else white space behind the mark is skipped, up to 8 tokens of it
    required  whether a text may end only behind the mark; else free text is a text
    until     the text with which the structure's ends, "" if that is of ids: free text follows, in which it may begin
              again, and the whole text ends outside alone. None: the text ends with the structure's
    """

    def __init__(
        self,
        structure: Structure,
        mark: str | Sequence[int],
        spelling: Spelling | None = None,
        *,
        exact: bool = False,
        required: bool = False,
        until: str | None = None,
    ):
        self.mark = mark.encode() if isinstance(mark, str) else tuple(mark)
        if not self.mark:
            raise ValueError("mark: expected text or token ids, got none")
        if spelling is None and (isinstance(mark, str) or not exact or until is not None):
            raise ValueError(
                "spelling: expected that of the tokens, got none; give it, or a mark of token ids and exact"
            )
        self.structure, self.spelling = structure, spelling or Spelling(())
        self.exact, self.required = exact, required
        self.until = None if until is None else until.encode()
        self.prompt: Sequence[int] = ()

    def behind(self, prompt: Prompt) -> After:
        """This one for texts behind a prompt, whose last mark counts if what follows it begins the structure's text."""
        made = copy(self)
        made.prompt = [int(token) for token in prompt[-READ_BACK:]]
        return made

    def start(self, vocab_size: int, ends: Collection[int]) -> State:
        if isinstance(self.mark, tuple) and not all(0 <= token < vocab_size for token in self.mark):
            raise ValueError(f"mark: expected ids in [0, {vocab_size}), got {[*self.mark]}")
        inner = begin(self.structure, vocab_size, ends, ())
        assert inner.matcher is not None
        return State(_Marks(self, inner.matcher, vocab_size).start(), vocab_size, ends, inner.copies)


Units = bytes | tuple[int, ...]  # of what the mark is, text or ids


class _Marks:
    """What follows free text of which the last `read` units begin the mark, and what follows the mark."""

    def __init__(self, of: After, inner: Matcher, vocab_size: int):
        self.of, self.inner, self.vocab_size = of, inner, vocab_size
        self._borders = _borders(of.mark)
        self._wrong: dict[int, NDArray[np.uint32] | None] = {}

    def start(self) -> Matcher:
        """The state behind the prompt."""
        mark, prompt = self.of.mark, self.of.prompt
        text: Units = self.of.spelling.text(prompt) if isinstance(mark, bytes) else tuple(prompt)
        width = len(mark)
        last = next((at for at in range(len(text) - width, -1, -1) if text[at : at + width] == mark), None)
        if last is not None:
            state = self._behind(text[last + width :])
            if state is not None and not isinstance(state, _Free):
                return state
        state = self.free(0, False, text[max(len(text) - width + 1, 0) :])
        assert state is not None
        return state

    def units(self, token: int) -> Units:
        return (token,) if isinstance(self.of.mark, tuple) else self.spelt(token)

    def spelt(self, token: int) -> bytes:
        return self.of.spelling.tokens[token] if token < len(self.of.spelling.tokens) else b""

    def free(self, read: int, met: bool, text: Units) -> Matcher | None:
        """The state after more free text; None if it holds the mark, and goes on with what the structure refuses."""
        mark = self.of.mark
        for at, unit in enumerate(text, 1):
            while read and mark[read] != unit:
                read = self._borders[read]
            read += mark[read] == unit
            if read == len(mark):
                return self._behind(text[at:])
        return _Free(self, read, met)

    def _behind(self, rest: Units) -> Matcher | None:
        """The state after what follows the mark; None if no text of the structure begins with it."""
        if self.of.exact and not rest:
            return self.inside(self.inner)
        if self.of.exact and isinstance(rest, tuple):  # of a prompt
            try:
                matcher = State(self.inner, self.vocab_size, ()).after(rest).matcher
            except ValueError:
                return None
            return matcher and self.inside(matcher)
        text = rest if isinstance(rest, bytes) else self.of.spelling.text(rest)
        if self.of.exact:
            return self.inner_after(text)
        text = text.lstrip(SPACE)
        return self.inner_after(text) if text else _Skipping(self, SKIPPED)

    def inner_after(self, text: bytes) -> Matcher | None:
        """The state after a text of the structure, and what follows its end; None if it is none."""
        begun = self.inner.begun(text, self.of.spelling)
        if begun is not None or self.of.until is None:
            return begun and self.inside(begun)
        for end in range(1, len(text)):
            done = self.inner.begun(text[:end], self.of.spelling)
            if done is None or done.complete:
                return done and self.free(0, True, text[end:])
        return None

    def inside(self, matcher: Matcher) -> Matcher:
        if self.of.until is None:
            return matcher
        return _Free(self, 0, True) if matcher.complete else _Inside(self, matcher)

    def wrong(self, read: int) -> NDArray[np.uint32] | None:
        """The bits of tokens that complete the mark and go on with what the structure refuses; None if none do."""
        if read not in self._wrong:
            tokens = [token for token in self._completing(read) if self.free(read, False, self.spelt(token)) is None]
            self._wrong[read] = bits_of(tokens, self.vocab_size) if tokens else None
        return self._wrong[read]

    def _completing(self, read: int) -> set[int]:
        """Tokens that complete the mark, where it is text."""
        mark, spelling = self.of.mark, self.of.spelling
        if isinstance(mark, tuple):
            return set()
        tokens = {*spelling.containing(mark)}
        while read:
            tokens.update(spelling.beginning(mark[read:]))
            read = self._borders[read]
        return {token for token in tokens if token < self.vocab_size}

    @cached_property
    def skipping(self) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The bits of tokens behind the mark and white space, and of those that are white space alone."""
        words = np.zeros((self.vocab_size + 31) // 32, np.uint32)
        self.inner.write(words)
        spaced, begun = list[int](), list[int]()
        for first, tokens in self.of.spelling.spaced.items():
            spaced += [token for token, _ in tokens]
            if first and self.inner_after(first) is not None:  # few bytes begin a text
                begun += [token for token, rest in tokens if self.inner_after(rest) is not None]
        blank = bits_of([token for token, _ in self.of.spelling.spaced.get(b"", ())], self.vocab_size)
        return words & ~bits_of(spaced, self.vocab_size) | bits_of(begun, self.vocab_size), blank

    @cached_property
    def past_until(self) -> dict[bytes, list[int]]:
        """Tokens that go on behind the mark at which the structure's text ends, by what they hold in front."""
        until, spelling, found = self.of.until, self.of.spelling, dict[bytes, list[int]]()
        if not until:
            return found
        ends = ((until[at:], token) for at in range(len(until)) for token in spelling.beginning(until[at:]))
        whole = ((spelling.tokens[token].partition(until)[0] + until, token) for token in spelling.containing(until))
        for before, token in {*ends, *whole}:
            if before != spelling.tokens[token] and token < self.vocab_size:
                found.setdefault(before, []).append(token)
        return found


class _Part(Matcher):
    """A state in front of the structure's text, or in it if free text follows."""

    accepting = False

    def __init__(self, marks: _Marks):
        self.marks = marks

    def after(self, *tokens: int) -> Matcher:
        state: Matcher | None = self
        for token in tokens:
            state = state.step(token) if isinstance(state, _Part) else state and state.after(token)
        assert state is not None, f"expected tokens that are allowed, got {tokens}"
        return state

    @abstractmethod
    def step(self, token: int) -> Matcher | None:
        """The state after one token; None if it may not follow."""


class _Free(_Part):
    """Free text whose last `read` units begin the mark. met: whether a text of the structure is in front of it."""

    def __init__(self, marks: _Marks, read: int, met: bool):
        super().__init__(marks)
        self._read, self._met = read, met
        self.accepting = met or not marks.of.required

    @property
    def free(self) -> bool:
        return self.accepting and self.marks.wrong(self._read) is None

    def write(self, words: NDArray[np.uint32]) -> None:
        wrong = self.marks.wrong(self._read)
        words[:] = 0xFFFFFFFF if wrong is None else ~wrong

    def step(self, token: int) -> Matcher | None:
        return self.marks.free(self._read, self._met, self.marks.units(token))


class _Skipping(_Part):
    """White space behind the mark. left: how many more tokens of it may follow."""

    def __init__(self, marks: _Marks, left: int):
        super().__init__(marks)
        self._left = left
        self.accepting = marks.inner.accepting and marks.of.until is None

    def write(self, words: NDArray[np.uint32]) -> None:
        begun, blank = self.marks.skipping
        words[:] = begun | blank if self._left else begun

    def step(self, token: int) -> Matcher | None:
        text = self.marks.spelt(token)
        rest = text.lstrip(SPACE)
        if rest == text:  # also of tokens without text
            return self.marks.inside(self.marks.inner).after(token)
        return self.marks.inner_after(rest) if rest else _Skipping(self.marks, self._left - 1)


class _Inside(_Part):
    """A text of the structure, behind whose end free text follows."""

    def __init__(self, marks: _Marks, matcher: Matcher):
        super().__init__(marks)
        self._matcher = matcher

    @cached_property
    def _past(self) -> dict[int, Matcher]:
        """The states after tokens that go on past the end of the structure's text."""
        found = dict[int, Matcher]()
        for before, tokens in self.marks.past_until.items():
            done = self._matcher.begun(before, self.marks.of.spelling)
            for token in tokens if done is not None and done.complete else ():
                state = self.marks.free(0, True, self.marks.spelt(token)[len(before) :])
                if state is not None:
                    found[token] = state
        return found

    def run(self) -> Sequence[int]:
        """Not up to the end, which tokens may go past."""
        run = self._matcher.run()
        if not run or self._past:
            return ()
        ahead = self._matcher.after(*run)
        return () if ahead.complete or _Inside(self.marks, ahead)._past else run

    def write(self, words: NDArray[np.uint32]) -> None:
        self._matcher.write(words)
        if self._past:
            words |= bits_of(self._past, self.marks.vocab_size)

    def step(self, token: int) -> Matcher | None:
        return self._past.get(token) or self.marks.inside(self._matcher.after(token))


def _borders(mark: Units) -> list[int]:
    """For each length of the mark's beginning, that of the longest shorter beginning that also ends it (Knuth, Morris
    and Pratt).
    """
    borders = [0] * (len(mark) + 1)
    for length in range(2, len(mark) + 1):
        border = borders[length - 1]
        while border and mark[border] != mark[length - 1]:
            border = borders[border]
        borders[length] = border + (mark[border] == mark[length - 1])
    return borders
