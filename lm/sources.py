"""The text of a build in pieces: text and token files, and windows that were counted elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

from rescore.lm.counting import Content
from rescore.lm.pieces import Piece
from rescore.lm.skipped import Skipped
from rescore.lm.tokenize import tokens_of
from rescore.lm.tokenizer import TextTokenizer


class TokenSource:
    """Pieces of text and token files."""

    def __init__(self, pieces: Sequence[Piece], *, vocab_size: int, eot: int, tokenizer: TextTokenizer | None = None, strict: bool = False) -> None:
        """strict  the first bad line is an error; else it is skipped"""
        self._pieces, self._vocab_size, self._eot, self._tokenizer, self._strict = pieces, vocab_size, eot, tokenizer, strict
        self._skipped: dict[int, Skipped] = {}
        self._once = secrets.token_hex(4)

    @property
    def key(self) -> dict[str, Any]:
        """The pieces and the tokenizer, for JSON. Pipes are never the same again: nobody can tell what they will hold."""
        key: dict[str, Any] = {"pieces": [piece.to_json() for piece in self._pieces], "tokenizer": self._tokenizer.sha256 if self._tokenizer else None}
        if any(piece.size is None for piece in self._pieces):
            key["read from a pipe"] = self._once
        return key

    def __len__(self) -> int:
        return len(self._pieces)

    def size(self, piece: int) -> int:
        """Bytes or tokens of a piece, for the progress bar; 0 if unknown."""
        own = self._pieces[piece]
        return own.end - own.begin if own.end is not None else own.size or 0

    def read(self, piece: int) -> Iterable[Content]:
        """The tokens of a piece: see `tokens_of`."""
        self._skipped[piece] = Skipped()
        return tokens_of(self._pieces[piece], vocab_size=self._vocab_size, eot=self._eot, tokenizer=self._tokenizer,
                         skipped=None if self._strict else self._skipped[piece])

    def skipped(self, piece: int) -> dict[str, Any]:
        """What was left out of a piece that has been read."""
        return self._skipped.pop(piece).to_json()
