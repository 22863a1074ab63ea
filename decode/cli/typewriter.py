"""Streams the texts of a batch to standard output, one after the other, in colours on a terminal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from rescore.decode.cli.values import printable, printable_text
from rescore.decode.loop.generate import Chunk
from rescore.decode.loop.text_stream import TextPiece, TextStream

SHADES = ("\x1b[36m", "\x1b[32m")  # alternate for runs of accepted tokens; root tokens are plain
PLAIN = "\x1b[0m"
ROOT = -1  # mark of root tokens


def wants_colour(out: TextIO, no_color: bool) -> bool:
    """Whether `out` is a terminal with colours, and neither --no-color nor NO_COLOR (no-color.org) is set."""
    return out.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Typewriter:
    """Shows the first text that has not ended; later texts wait. A context manager: it restores the terminal.

    texts     the stream of each request
    headings  shown before each text if there are several
    """

    def __init__(self, texts: Sequence[TextStream[int]], headings: Sequence[str], *, colour: bool, out: TextIO):
        self.out = out
        self.texts, self.headings, self.colour = texts, headings, colour
        self.said = [""] * len(texts)  # each text so far
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
            self._write("\n")  # so that an error message starts on a new line

    def show(self, chunk: Chunk) -> None:
        text, run = self.texts[chunk.request], self._runs[chunk.request]
        marks = [run % len(SHADES)] * chunk.accepted + [ROOT] * (len(chunk.tokens) - chunk.accepted)
        self._runs[chunk.request] += chunk.accepted > 0
        pieces = [piece for token, mark in zip(chunk.tokens.tolist(), marks) for piece in text.add(token, mark)]
        if chunk.finish is not None:
            pieces += text.finish(ROOT)
            self._ended[chunk.request] = True
        self.said[chunk.request] += "".join(piece.text for piece in pieces)
        self._waiting[chunk.request] += "".join(map(self._styled, pieces))
        self._flush()

    def _flush(self) -> None:
        """Writes what is waiting of the current text, and moves on to the next if it has ended."""
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
        text = printable_text(piece.text) if self._terminal else piece.text
        return f"{SHADES[piece.mark]}{text}{PLAIN}" if self.colour and piece.mark != ROOT else text

    def _write(self, text: str) -> None:
        if text:
            self.out.write(text)
            self._line_ended = text.endswith("\n")
            self.out.flush()


def heading(number: int, count: int, prompt: str) -> str:
    """The heading of one prompt among several."""
    line = printable(" ".join(prompt.split()))
    return f"{number}/{count}: {line if len(line) <= 60 else line[:57] + '...'}"
