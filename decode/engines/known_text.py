"""The text of one request as seen so far, with its n-gram counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.draft.prediction import ExpectedText
from rescore.decode.draft.text_memory import TextMemory
from rescore.lattice.structure import State, Structure
from rescore.lattice.tree import TokenTree

NOTHING = TokenTree.from_parents([], [])


class Behind:
    """Counts behind a prompt."""

    __slots__ = ("counts", "__weakref__")

    def __init__(self, counts: _core.ContextModel):
        self.counts = counts


class Prompts:
    """The prompts of running requests. Those of one prompt share their counts, in which it counts once. Thread-safe."""

    def __init__(self, counts: Callable[[], _core.ContextModel]):
        self._counts = counts
        self._lock = threading.Lock()
        self._behind: WeakValueDictionary[bytes, Behind] = WeakValueDictionary()

    def behind(self, prompt: NDArray[np.int32]) -> tuple[Behind, _core.ContextModel]:
        """What is kept while any request of the prompt [m] runs, and the counts of one more."""
        key = prompt.tobytes()
        with self._lock:
            if behind := self._behind.get(key):
                return behind, behind.counts.sibling()
            counts = self._counts()
            counts.extend(prompt, prompt=True)
            behind = self._behind[key] = Behind(counts.sibling())
            return behind, counts


class KnownText:
    """The tokens of a request, their n-gram counts, and the last draft.

    key      the engine's id of the request; None if the request is matched by its tokens
    counts   what followed its contexts, shared with the other requests of its prompt, once it has begun
    memory   where the text goes when it ends
    prompt   number of prompt tokens
    seen     number of the last call that used this text
    drafted  the draft proposed after the last token
    """

    __slots__ = (
        "counts",
        "drafted",
        "key",
        "memory",
        "prompt",
        "seen",
        "size",
        "_behind",
        "_buffer",
        "_expected",
        "_state",
        "_stepped",
        "_structure",
    )

    def __init__(self, key: Hashable = None):
        self.key = key
        self.counts: _core.ContextModel
        self.memory: TextMemory | None = None
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

    def begin(self, tokens: NDArray[np.int32], prompt: int, prompts: Prompts) -> None:
        """Reads the first tokens [m], of which the first ones are the prompt."""
        self._behind, self.counts = prompts.behind(tokens[:prompt])
        self._append(tokens[:prompt])
        self.prompt = prompt
        self.extend(tokens[prompt:])

    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Appends tokens [m]."""
        self.counts.extend(tokens)
        self._append(tokens)

    def _append(self, tokens: NDArray[np.int32]) -> None:
        end = self.size + len(tokens)
        if end > len(self._buffer):
            longer = np.empty(2 * end, np.int32)
            longer[: self.size] = self.tokens
            self._buffer = longer
        self._buffer[self.size : end] = tokens
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
