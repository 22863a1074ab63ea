"""The text of one request as seen so far, with its n-gram counts."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.prediction import ExpectedText
from rescore.lattice.structure import State, Structure
from rescore.lattice.tree import TokenTree

NOTHING = TokenTree.from_parents([], [])


class KnownText:
    """The tokens of a request, their n-gram counts, and the last draft.

    key      the engine's id of the request; None if the request is matched by its tokens
    prompt   number of prompt tokens, those of the first call
    seen     number of the last call that used this text
    drafted  the draft proposed after the last token
    """

    __slots__ = (
        "counts",
        "drafted",
        "key",
        "prompt",
        "seen",
        "size",
        "_buffer",
        "_expected",
        "_state",
        "_stepped",
        "_structure",
    )

    def __init__(self, counts: _core.ContextModel, key: Hashable = None):
        self.counts, self.key = counts, key
        self.size = self.prompt = self.seen = 0
        self.drafted = NOTHING
        self._buffer = np.empty(256, np.int32)
        self._structure: Structure | None = None
        self._state: State | None = None
        self._stepped = 0  # tokens that the state has seen
        self._expected: ExpectedText | None = None

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All tokens, int32 [size]; a view, valid until the text grows."""
        return self._buffer[: self.size]

    def tail(self, most: int) -> NDArray[np.int32]:
        """The last `most` tokens, or all if there are fewer."""
        return self._buffer[max(0, self.size - most) : self.size]

    def begins(self, tokens: NDArray[np.int32]) -> bool:
        """Whether `tokens` begin with this text."""
        return len(tokens) >= self.size and np.array_equal(self.tokens, tokens[: self.size])

    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Appends tokens [m], the first ones as a prompt."""
        self.counts.extend(tokens, prompt=not self.size)
        end = self.size + len(tokens)
        if end > len(self._buffer):
            longer = np.empty(2 * end, np.int32)
            longer[: self.size] = self.tokens
            self._buffer = longer
        self._buffer[self.size : end] = tokens
        self.prompt = self.prompt or end
        self.size = end

    def edits(self, prediction: NDArray[np.int32] | None, start: int) -> _core.EditModel | None:
        """The automaton of edits of a predicted text after the tokens from `start` on."""
        if prediction is None:
            self._expected = None
            return None
        if self._expected is None or self._expected.prediction is not prediction:
            self._expected = ExpectedText(prediction, start)
        return self._expected.after(self.tokens)

    def state(self, structure: Structure, start: int, vocab_size: int, ends: Collection[int]) -> State | None:
        """The state after the tokens from `start` on; None if the structure does not allow them."""
        if structure is not self._structure:
            self._structure, self._state, self._stepped = structure, structure.start(vocab_size, ends), start
        try:
            self._state = self._state and self._state.after(self._buffer[self._stepped : self.size].tolist())
        except ValueError:
            self._state = None
        self._stepped = self.size
        return self._state
