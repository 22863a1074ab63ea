"""Texts of a batch on standard output as they come, one after the other, in colours on a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from rescore.decode.cli.arguments import harmless, printable
from rescore.decode.loop.generate import Chunk
from rescore.decode.loop.text_stream import TextPiece, TextStream

SHADES = ("\x1b[36m", "\x1b[32m")  # runs of accepted tokens in turn; root tokens are plain
PLAIN = "\x1b[0m"
CERTAIN = -1  # mark of a token that no draft gave


def wants_colour(out: TextIO, no_color: bool) -> bool:
    """On a terminal that knows colours, unless --no-color or NO_COLOR (no-color.org) says otherwise."""
    return out.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Typewriter:
    """Shows the first text that has not ended; those behind it wait. Used as a context, it leaves a terminal as it was.

    texts: the stream of each request. headings: shown in front of each text, unless there is but one.
    """

    def __init__(self, texts: Sequence[TextStream[int]], headings: Sequence[str], *, colour: bool, out: TextIO):
        self.out = out
        self.texts, self.headings, self.colour = texts, headings, colour
        self.said = [""] * len(texts)  # the whole of each text
        self._waiting = [""] * len(texts)
        self._runs = [0] * len(texts)
        self._ended = [False] * len(texts)
        self._current = 0
        self._terminal = self.out.isatty()
        self._line_ended = True

    def __enter__(self) -> Typewriter:
        self._head()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not self._line_ended:
            self._write("\n")  # what was written stays, on a line of its own

    def show(self, chunk: Chunk) -> None:
        text, run = self.texts[chunk.request], self._runs[chunk.request]
        marks = [run % len(SHADES)] * chunk.accepted + [CERTAIN] * (len(chunk.tokens) - chunk.accepted)
        self._runs[chunk.request] += chunk.accepted > 0
        pieces = [piece for token, mark in zip(chunk.tokens.tolist(), marks) for piece in text.add(token, mark)]
        if chunk.finish is not None:
            pieces += text.finish(CERTAIN)
            self._ended[chunk.request] = True
        self.said[chunk.request] += "".join(piece.text for piece in pieces)
        self._waiting[chunk.request] += "".join(map(self._styled, pieces))
        self._go_on()

    def _go_on(self) -> None:
        """Writes what can be seen now; behind a text that has ended, the next."""
        while self._current < len(self.texts):
            self._write(self._waiting[self._current])
            self._waiting[self._current] = ""
            if not self._ended[self._current]:
                return
            self._write("" if self.said[self._current].endswith("\n") else "\n")
            self._current += 1
            self._head()

    def _head(self) -> None:
        if len(self.texts) > 1 and self._current < len(self.texts):
            self._write(("\n" if self._current else "") + f"==> {self.headings[self._current]} <==\n")

    def _styled(self, piece: TextPiece[int]) -> str:
        text = harmless(piece.text) if self._terminal else piece.text
        return f"{SHADES[piece.mark]}{text}{PLAIN}" if self.colour and piece.mark != CERTAIN else text

    def _write(self, text: str) -> None:
        if text:
            self.out.write(text)
            self._line_ended = text.endswith("\n")
            self.out.flush()


def heading(number: int, count: int, prompt: str) -> str:
    """Of one prompt among several."""
    line = printable(" ".join(prompt.split()))
    return f"{number}/{count}: {line if len(line) <= 60 else line[:57] + '...'}"
