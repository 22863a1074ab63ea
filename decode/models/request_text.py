"""The text of a request, as its drafters see it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.structure import State

if TYPE_CHECKING:
    from rescore import _core


class RequestText:
    """The text of a request, what bounds it, and what q reads along with it. Read by one drafter.

    number  of the request in its call: drafters keep what is theirs by it
    prompt  tokens before the answer
    state   of the structure that bounds the text, after all of it; None: it is free
    edits   automaton of the text that the answer is expected to be, after what `read` has read; None: there is none
    memory  earlier texts of whoever asked (a `TextMemory`); None: those of the drafter
    lm      n-gram model of whoever asked (an `NGram`); None: that of the drafter
    group   equal for requests that draft from each other's texts; None: those with the same prompt do
    random  numbers of drawn drafts
    placeholders  ids of the prompt that stand for images or sound, and are no text
    counts  what followed the text's contexts, after what `read` has read; None until q reads it (`SharedCounts`)
    """

    def __init__(
        self,
        tokens: NDArray[np.integer],
        *,
        number: int = 0,
        prompt: int | None = None,
        room: int = 0,
        random: np.random.Generator | None = None,
    ):
        """tokens: the first ones, [n]; prompt: None for all of them; room: how many more are expected; random: None for
        numbers that are the same for every call.
        """
        self.number, self.prompt = number, len(tokens) if prompt is None else prompt
        self.state: State | None = None
        self.edits: _core.EditModel | None = None
        self.memory: Any = None
        self.lm: Any = None
        self.group: Hashable = None
        self.random = random or np.random.default_rng(number)
        self.placeholders: Collection[int] = ()
        self.counts: _core.ContextModel | None = None
        self.size = 0
        self._edited = 0  # tokens that `edits` has passed over or read
        self._allocate(len(tokens) + room)
        self.append(tokens)

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All tokens, int32 [size]: a read-only view, since drafters, processors and criteria may be foreign code."""
        return self._view[: self.size]

    @property
    def answer(self) -> NDArray[np.int32]:
        """The tokens behind the prompt."""
        return self.tokens[self.prompt :]

    def append(self, tokens: NDArray[np.integer] | Sequence[int]) -> None:
        end = self.size + len(tokens)
        if end > len(self._buffer):
            before = self.tokens
            self._allocate(2 * end)
            self._buffer[: self.size] = before
        self._buffer[self.size : end] = tokens
        self.size = end

    def _allocate(self, room: int) -> None:
        self._buffer = np.empty(room, np.int32)
        self._view = self._buffer.view()
        self._view.flags.writeable = False

    def expect(self, edits: _core.EditModel | None, start: int) -> None:
        """Expects the text of an automaton from the token of number `start` on."""
        self.edits, self._edited = edits, start

    def read(self) -> None:
        """Lets what q reads catch up with the text."""
        if self.counts is not None and self.counts.size < self.size:
            self.counts.extend(self.tokens[self.counts.size :])
        if self.edits is not None and self._edited < self.size:
            self.edits.extend(self.tokens[self._edited :])
            self._edited = self.size


def last_tokens(texts: Sequence[RequestText], length: int) -> NDArray[np.int32]:
    """The last tokens of each text, int32 [B, n], padding -1 in front; n is at least `length`, 1, and what the texts'
    own memories and n-gram models read.
    """
    memories = (text.memory.context for text in texts if text.memory)
    models = (text.lm.order - 1 for text in texts if text.lm)
    rows = np.full((len(texts), max(1, length, *memories, *models)), -1, np.int32)
    for row, text in zip(rows, texts):
        tail = text.tokens[-len(row) :]
        row[len(row) - len(tail) :] = tail
    return rows
