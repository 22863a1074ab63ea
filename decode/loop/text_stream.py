"""Incremental text: token by token, without partial characters or stop strings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TextOf = Callable[[Sequence[int]], str]
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
BEFORE = 16  # tokens of the prompt that precede the first decoding window


class Detokenizer:
    """The text that each token adds to those before it.

    It is the difference between the decoded text with and without the token, in a window that begins at the last
    output; text that ends inside a character is held back until the character is complete. Spaces that tokenizers drop
    at the beginning of a text, or put between words, are therefore as in the whole text.
    """

    def __init__(self, decode: TextOf, prompt: Sequence[int] = ()):
        self._decode = decode
        self._ids = list(prompt)[-BEFORE:]
        self._shown = len(self._ids)  # tokens whose text was output

    def add(self, token: int) -> str:
        """Adds a token and returns the new complete text."""
        self._ids.append(token)
        text = self._new_text()
        if not text or text.endswith(INCOMPLETE):
            return ""
        if not self._decode(self._ids[: self._shown]).endswith(INCOMPLETE):  # a prompt may end inside a character
            self._ids = self._ids[self._shown :]
        self._shown = len(self._ids)
        return text

    def finish(self) -> str:
        """Returns the text held back, partial characters included."""
        text = self._new_text()
        self._shown = len(self._ids)
        return text

    def _new_text(self) -> str:
        before = self._decode(self._ids[: self._shown]).rstrip(INCOMPLETE)
        return self._decode(self._ids)[len(before) :]


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text, and the mark of the token that completed it."""

    text: str
    mark: int


class TextStream:
    """Pieces of one request's text, up to the first stop string.

    Text that may begin a stop string is held back until this is decided. `stopped` is true after a stop string; what
    follows is dropped.
    """

    def __init__(self, decode: TextOf, *, prompt: Sequence[int] = (), stops: Sequence[str] = ()):
        self._detokenizer = Detokenizer(decode, prompt)
        self._stops = tuple(stops)
        self._held: list[TextPiece] = []
        self.stopped = False

    def add(self, token: int, mark: int) -> list[TextPiece]:
        """Adds a token and returns the pieces that can be shown."""
        return self._show(self._detokenizer.add(token), mark)

    def finish(self, mark: int) -> list[TextPiece]:
        """Returns the rest, after the last token."""
        pieces = self._show(self._detokenizer.finish(), mark)
        rest, self._held = self._held, []
        return pieces + rest

    def _show(self, text: str, mark: int) -> list[TextPiece]:
        if not text or self.stopped:
            return []
        self._held.append(TextPiece(text, mark))
        whole = "".join(piece.text for piece in self._held)
        found = [at for stop in self._stops if (at := whole.find(stop)) >= 0]
        if found:
            self.stopped = True
            pieces = self._release(min(found))
            self._held = []
            return pieces
        return self._release(len(whole) - max((_overlap(whole, stop) for stop in self._stops), default=0))

    def _release(self, length: int) -> list[TextPiece]:
        """The first `length` characters held back."""
        out: list[TextPiece] = []
        while self._held and length > 0:
            piece = self._held.pop(0)
            out.append(TextPiece(piece.text[:length], piece.mark))
            if len(piece.text) > length:
                self._held.insert(0, TextPiece(piece.text[length:], piece.mark))
            length -= len(piece.text)
        return out


def _overlap(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that is a proper prefix of `stop`."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
