"""The bytes of the tokens of a vocabulary."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache

SPACE = b" \t\r\n"
MARKS = 64  # whose tokens are known


class Spelling:
    """The bytes of every id, of those without text none. special: ids that spell marks alone."""

    def __init__(self, tokens: Sequence[bytes], special: Collection[int] = ()):
        self.tokens = tokens
        self._sorted = sorted((spelt, token) for token, spelt in enumerate(tokens) if spelt)
        self.containing = lru_cache(maxsize=MARKS)(self._containing)
        self._of: dict[bytes, list[int]] = {}
        for token, spelt in enumerate(tokens):
            if spelt and token not in special:
                self._of.setdefault(spelt, []).append(token)

    def text(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.tokens[token] for token in tokens if token < len(self.tokens))

    def beginning(self, text: bytes) -> Iterator[int]:
        """Ids whose bytes begin with a text."""
        for at in range(bisect_left(self._sorted, (text, -1)), len(self._sorted)):
            spelt, token = self._sorted[at]
            if not spelt.startswith(text):
                return
            yield token

    def _containing(self, text: bytes) -> list[int]:
        """Ids whose bytes hold a text."""
        return [token for spelt, token in self._sorted if text in spelt]

    def first(self, text: bytes) -> Iterator[tuple[int, list[int]]]:
        """The lengths of beginnings of a text, and the ids that spell each."""
        for length in range(1, len(text) + 1):
            if tokens := self._of.get(text[:length]):
                yield length, tokens

    @cached_property
    def spaced(self) -> dict[bytes, list[tuple[int, bytes]]]:
        """Ids that begin with white space, and their text behind it, by its first byte."""
        found: dict[bytes, list[tuple[int, bytes]]] = {}
        for token in (token for space in SPACE for token in self.beginning(bytes([space]))):
            rest = self.tokens[token].lstrip(SPACE)
            found.setdefault(rest[:1], []).append((token, rest))
        return found
