"""The texts of requests under way: found by id or by content, bounded, safe to use from several threads."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

import numpy as np
from numpy.typing import NDArray

from rescore import _core
from rescore.decode.engines.known_text import KnownText

TAIL = 16  # last tokens of a text that it is looked up by, before all of it is compared
AHEAD = 80  # tokens that a text may have grown by to be looked up so; of longer growth, all texts are compared
IDLE = 256  # calls after which a text that no call asked for is dropped: its request has ended, or waits for long


class TextStore:
    """Texts by id, or by content: the longest one that a request's tokens begin with.

    `take` removes a text from the store and `put` returns it, so that two threads never extend the same one; a request
    whose text is out, or was dropped, gets a new one, which is only slower.

    counts  makes the counts of a new text
    ended   is told of every text that is dropped
    most    texts; tokens: of all of them; the least recently used are dropped
    """

    def __init__(
        self,
        counts: Callable[[], _core.ContextModel],
        ended: Callable[[KnownText], None],
        *,
        most: int,
        tokens: int,
    ):
        self._counts, self._ended = counts, ended
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
        """Of all texts."""
        return self._tokens

    def size(self, key: Hashable) -> int:
        """Tokens known of a request, 0 if it is not."""
        with self._lock:
            text = self._by_key.get(key)
            return text.size if text else 0

    def take(self, key: Hashable) -> KnownText:
        """The text of that id, or a new one."""
        with self._lock:
            text = self._by_key.get(key)
            if text:
                self._remove(text)
        return text or KnownText(self._counts(), key)

    def take_by_content(self, tokens: NDArray[np.int32]) -> KnownText:
        """The longest text that `tokens` begin with, or a new one."""
        with self._lock:
            text = next((one for one in self._candidates(tokens) if one.begins(tokens)), None)
            if text:
                self._remove(text)
        return text or KnownText(self._counts())

    def put(self, texts: list[KnownText]) -> None:
        """Return the texts of one call; drops those that nobody has asked for in a long time, or that are too many."""
        with self._lock:
            self._call += 1
            for text in texts:
                text.seen = self._call
                if text.key is not None and text.key in self._by_key:  # another thread's of the same request
                    self._remove(self._by_key[text.key])
                self._add(text)
            dropped = list(self._drop())
        for text in dropped:
            self._ended(text)

    def end(self, key: Hashable) -> None:
        """The request of that id has ended; none if it is not known."""
        with self._lock:
            text = self._by_key.get(key)
            if text:
                self._remove(text)
        if text:
            self._ended(text)

    def clear(self) -> None:
        """All requests have ended."""
        with self._lock:
            texts = list(self._texts.values())
            for text in texts:
                self._remove(text)
        for text in texts:
            self._ended(text)

    def _candidates(self, tokens: NDArray[np.int32]) -> Iterator[KnownText]:
        """Texts that may begin `tokens`, longest first."""
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
    return text.size, text.tail(TAIL).tobytes()
