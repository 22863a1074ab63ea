"""The texts of running requests, with their n-gram counts: a bounded, thread-safe store, by id or by content."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator

import numpy as np
from numpy.typing import NDArray

from rescore.decode.draft.prediction import edit_model
from rescore.decode.draft.shared_counts import read_copies
from rescore.decode.models.request_text import RequestText
from rescore.lattice.structure import Structure, begin
from rescore.lattice.tree import EMPTY

TAIL = 16  # a text is indexed by its last tokens; a hit is then compared in full
AHEAD = 80  # growth in tokens up to which the index is used; beyond it, every text is compared
IDLE = 256  # a text unused for this many calls is dropped: its request has ended or is waiting


class KnownText(RequestText):
    """The text of a request that an engine runs.

    key      the engine's id of the request; None if the request is matched by its tokens
    seen     number of the last call that used this text
    drafted  the draft proposed after the last token
    """

    def __init__(self, key: Hashable = None):
        super().__init__(np.empty(0, np.int32), room=256)
        self.key, self.seen, self.drafted = key, 0, EMPTY
        self._prediction: NDArray[np.int32] | None = None
        self._structure: Structure | None = None
        self._stepped = 0  # tokens that the state has seen

    def begins(self, tokens: NDArray[np.int32]) -> bool:
        """Whether `tokens` begin with this text."""
        return len(tokens) >= self.size and np.array_equal(self.tokens, tokens[: self.size])

    def predict(self, prediction: NDArray[np.int32] | None, start: int) -> None:
        """Expects a predicted text after the tokens from `start` on."""
        if prediction is not self._prediction:
            self._prediction = prediction
            self.expect(None if prediction is None else edit_model(prediction), start)

    def bound(self, structure: Structure | None, start: int, vocab_size: int, ends: Collection[int]) -> None:
        """Bounds the text from the token `start` on; it is free if the structure does not allow it."""
        if structure != self._structure:
            self._structure, self._stepped = structure, start
            self.state = begin(structure, vocab_size, ends, self.tokens[:start]) if structure else None
            assert self.counts is not None
            read_copies(self.counts, self.state, self.tokens[:start])
        if self.state is not None:
            try:
                self.state = self.state.after(self.tokens[self._stepped :].tolist())
            except ValueError:
                self.state = None
        self._stepped = self.size


class TextStore:
    """Texts by id or by content: the longest text that is a prefix of a request's tokens.

    `take` removes a text from the store and `put` returns it, so two threads never extend the same text. A request
    whose text is taken or was dropped gets a new one: slower, but correct.

    ended   called with every text that is dropped
    most    maximum texts; tokens: their maximum total tokens. The least recently used are dropped.
    """

    def __init__(self, ended: Callable[[KnownText], None], *, most: int, tokens: int):
        self._ended = ended
        self._most, self._most_tokens = most, tokens
        self._lock = threading.Lock()
        self._texts: OrderedDict[int, KnownText] = OrderedDict()  # by id(), the least recently used first
        self._by_key: dict[Hashable, KnownText] = {}
        self._by_tail: dict[tuple[int, bytes], list[KnownText]] = {}
        self._call = self._tokens = 0

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def tokens(self) -> int:
        """Tokens of all texts together."""
        return self._tokens

    def take(self, key: Hashable) -> KnownText:
        """Takes the text of that id, or makes a new one."""
        return self._taken(lambda: self._by_key.get(key)) or KnownText(key)

    def take_by_content(self, tokens: NDArray[np.int32]) -> KnownText:
        """Takes the longest text that is a prefix of `tokens`, or makes a new one."""
        found = self._taken(lambda: next((one for one in self._candidates(tokens) if one.begins(tokens)), None))
        return found or KnownText()

    def _taken(self, find: Callable[[], KnownText | None]) -> KnownText | None:
        with self._lock:
            text = find()
            if text:
                self._remove(text)
        return text

    def put(self, texts: list[KnownText]) -> None:
        """Returns the texts of one call to the store; drops idle texts and those over the limits."""
        with self._lock:
            self._call += 1
            for text in texts:
                text.seen = self._call
                if text.key is not None and text.key in self._by_key:  # another thread's text of the same request
                    self._remove(self._by_key[text.key])
                self._add(text)
            dropped = list(self._drop())
        for text in dropped:
            self._ended(text)

    def end(self, key: Hashable) -> None:
        """Ends the request of that id; does nothing if it is unknown."""
        if text := self._taken(lambda: self._by_key.get(key)):
            self._ended(text)

    def clear(self) -> None:
        """Ends all requests."""
        with self._lock:
            texts = list(self._texts.values())
            for text in texts:
                self._remove(text)
        for text in texts:
            self._ended(text)

    def _candidates(self, tokens: NDArray[np.int32]) -> Iterator[KnownText]:
        """Yields texts that may be a prefix of `tokens`, longest first."""
        n = len(tokens)
        for size in range(n, max(n - AHEAD, 0), -1):
            yield from self._by_tail.get((size, tokens[max(0, size - TAIL) : size].tobytes()), ())
        shorter = [text for text in self._texts.values() if text.key is None and 0 < text.size <= n - AHEAD]
        yield from sorted(shorter, key=lambda text: -text.size)

    def _drop(self) -> Iterator[KnownText]:
        while self._texts:
            oldest = next(iter(self._texts.values()))
            crowded = len(self._texts) > self._most or self._tokens > self._most_tokens
            if not crowded and self._call - oldest.seen <= IDLE:
                return
            self._remove(oldest)
            yield oldest

    def _add(self, text: KnownText) -> None:
        self._texts[id(text)] = text
        self._tokens += text.size
        if text.key is None:
            self._by_tail.setdefault(_place(text), []).append(text)
        else:
            self._by_key[text.key] = text

    def _remove(self, text: KnownText) -> None:
        del self._texts[id(text)]
        self._tokens -= text.size
        if text.key is not None:
            del self._by_key[text.key]
            return
        place = _place(text)
        self._by_tail[place] = [one for one in self._by_tail[place] if one is not text]
        if not self._by_tail[place]:
            del self._by_tail[place]


def _place(text: KnownText) -> tuple[int, bytes]:
    return text.size, text.tokens[-TAIL:].tobytes()
