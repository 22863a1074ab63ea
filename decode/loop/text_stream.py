"""Text as it comes: token by token, never half a character, nothing of a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Mark = TypeVar("Mark")
Decode = Callable[[Sequence[int]], str]
INCOMPLETE = "\N{REPLACEMENT CHARACTER}"
BEFORE = 16  # tokens of the prompt that the first words are decoded behind


class Detokenizer:
    """The text that each token adds to those before it.

    What a token adds is seen from both texts, with it and without it, of a window that begins where text was last given
    out; a text that ends inside a character is held back until the tokens that complete it have come. So spaces that
    tokenizers drop at the beginning of a text, or put between words, stand where they stand in the whole.
    """

    def __init__(self, decode: Decode, prompt: Sequence[int] = ()):
        self._decode = decode
        self._ids = list(prompt)[-BEFORE:]
        self._told = len(self._ids)  # tokens whose text was given out

    def add(self, token: int) -> str:
        """What can be said now, with this token."""
        self._ids.append(token)
        text = self._new_text()
        if not text or text.endswith(INCOMPLETE):
            return ""
        if not self._decode(self._ids[: self._told]).endswith(INCOMPLETE):  # a prompt may end inside a character
            self._ids = self._ids[self._told :]
        self._told = len(self._ids)
        return text

    def finish(self) -> str:
        """What was held back, pieces of characters included."""
        text = self._new_text()
        self._told = len(self._ids)
        return text

    def _new_text(self) -> str:
        before = self._decode(self._ids[: self._told]).rstrip(INCOMPLETE)
        return self._decode(self._ids)[len(before) :]


@dataclass(frozen=True, slots=True)
class TextPiece(Generic[Mark]):
    """Text, and the mark of the token that completed it."""

    text: str
    mark: Mark


class TextStream(Generic[Mark]):
    """Pieces of text of one request, up to the first stop string.

    What may be the beginning of a stop string is held back until it is known. `stopped` is true once one has come; what
    follows is dropped.
    """

    def __init__(self, decode: Decode, *, prompt: Sequence[int] = (), stops: Sequence[str] = ()):
        self._detokenizer = Detokenizer(decode, prompt)
        self._stops = tuple(stops)
        self._held: list[TextPiece[Mark]] = []
        self.stopped = False

    def add(self, token: int, mark: Mark) -> list[TextPiece[Mark]]:
        """What can be shown now."""
        return self._say(self._detokenizer.add(token), mark)

    def finish(self, mark: Mark) -> list[TextPiece[Mark]]:
        """The rest, when no more tokens will come."""
        pieces = self._say(self._detokenizer.finish(), mark)
        rest, self._held = self._held, []
        return pieces + rest

    def _say(self, text: str, mark: Mark) -> list[TextPiece[Mark]]:
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

    def _release(self, length: int) -> list[TextPiece[Mark]]:
        """The first `length` characters of what is held."""
        out: list[TextPiece[Mark]] = []
        while self._held and length > 0:
            piece = self._held.pop(0)
            out.append(TextPiece(piece.text[:length], piece.mark))
            if len(piece.text) > length:
                self._held.insert(0, TextPiece(piece.text[length:], piece.mark))
            length -= len(piece.text)
        return out


def _overlap(text: str, stop: str) -> int:
    """The longest end of the text that a stop string begins with."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
