"""The sources of a build, in pieces: text and token files, and windows counted elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rescore.lm.build.counting import Content, Source, Windows
from rescore.lm.build.counts import CountOptions
from rescore.lm.build.counts_header import FILE_NAME
from rescore.lm.build.inputs import Piece
from rescore.lm.build.tokenize import tokens_of
from rescore.lm.build.work import PIPED
from rescore.lm.model.tokenizer import Tokenizer
from rescore.lm.model.vocabulary import Skipped

if TYPE_CHECKING:  # needs pyarrow, which only folders of counts require
    from rescore.lm.build.counts_files import CountsFiles, WindowCounts


class TokenSource:
    """Pieces of text and token files."""

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        vocab_size: int,
        end_of_text: int,
        tokenizer: Tokenizer | None = None,
        strict: bool = False,
    ) -> None:
        """strict  the first bad document is an error; else bad documents are skipped"""
        self._pieces = pieces
        self._vocab_size = vocab_size
        self._eot = end_of_text
        self._tokenizer = tokenizer
        self._strict = strict
        self._skipped: dict[int, Skipped] = {}
        self._once = secrets.token_hex(4)

    tokens: int | None = None  # unknown before the pieces are read

    @property
    def key(self) -> dict[str, Any]:
        """Tokenizer and chat template, for JSON. Pipes get a random key, since they cannot be identified."""
        once = {PIPED: self._once} if any(piece.size is None for piece in self._pieces) else {}
        chats = getattr(self._tokenizer, "chats", None)
        template = {"chats": chats.sha256} if chats else {}
        return {"tokenizer": self._tokenizer.sha256 if self._tokenizer else None, **template, **once}

    def identity(self, piece: int) -> dict[str, Any]:
        """The piece as JSON (see `Piece`)."""
        return self._pieces[piece].to_json()

    def __len__(self) -> int:
        return len(self._pieces)

    def size(self, piece: int) -> int:
        """Bytes or tokens of a piece, for the progress bar; 0 if unknown."""
        own = self._pieces[piece]
        return own.end - own.begin if own.end is not None else own.size or 0

    def read(self, piece: int) -> Iterable[Content]:
        """The tokens of a piece (see `tokens_of`)."""
        self._skipped[piece] = Skipped()
        return tokens_of(
            self._pieces[piece],
            vocab_size=self._vocab_size,
            end_of_text=self._eot,
            tokenizer=self._tokenizer,
            skipped=None if self._strict else self._skipped[piece],
        )

    def skipped(self, piece: int) -> dict[str, Any]:
        """What was skipped in a piece that has been read."""
        return self._skipped.pop(piece).to_json()


class CountsSource:
    """Windows of folders of counts; each file is a piece."""

    def __init__(self, folders: Sequence[CountsFiles], options: CountOptions, tokenizer: str | None = None) -> None:
        """ValueError unless the counts have this vocabulary, end-of-text and tokenizer (hash, if known), and at least
        this order.
        """
        for folder in folders:
            _check_header(folder, options, tokenizer)
        self._pieces = [(folder, path) for folder in folders for path in folder.paths]
        self._order = options.order
        self.tokens = (
            sum(folder.header.tokens for folder in folders) if all(folder.whole for folder in folders) else None
        )

    key = "counts"

    def identity(self, piece: int) -> dict[str, Any]:
        """A file's path, size and modification time, for JSON."""
        path = self._pieces[piece][1]
        return {"path": str(path), "size": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns}

    def __len__(self) -> int:
        return len(self._pieces)

    def size(self, piece: int) -> int:
        """Bytes of a piece."""
        return self._pieces[piece][1].stat().st_size

    def read(self, piece: int) -> Iterable[Content]:
        """Yields the windows of a file in batches."""
        folder, path = self._pieces[piece]
        return (_shortened(batch, self._order) for batch in replace(folder, paths=(path,), whole=False).batches())

    def skipped(self, piece: int) -> dict[str, Any]:
        """Nothing: skipped documents were reported when the counts were made."""
        return {"documents": 0}


class Sources:
    """Several sources, concatenated."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = [source for source in sources if len(source)]
        self._pieces = [(source, piece) for source in self._sources for piece in range(len(source))]
        known = [source.tokens for source in self._sources]
        self.tokens = None if None in known else sum(tokens or 0 for tokens in known)

    @property
    def key(self) -> list[Any]:
        return [source.key for source in self._sources]

    def __len__(self) -> int:
        return len(self._pieces)

    def identity(self, piece: int) -> Any:
        source, own = self._pieces[piece]
        return source.identity(own)

    def size(self, piece: int) -> int:
        source, own = self._pieces[piece]
        return source.size(own)

    def read(self, piece: int) -> Iterable[Content]:
        source, own = self._pieces[piece]
        return source.read(own)

    def skipped(self, piece: int) -> dict[str, Any]:
        source, own = self._pieces[piece]
        return source.skipped(own)


def is_counts(path: str | Path) -> bool:
    """Whether an input is a folder of counts, or a file in one."""
    path = Path(path)
    return (path / FILE_NAME).is_file() or (path.suffix == ".parquet" and path.with_name(FILE_NAME).is_file())


def _check_header(folder: CountsFiles, options: CountOptions, tokenizer: str | None) -> None:
    header, where = folder.header, folder.paths[0].parent
    if header.order < options.order:
        raise ValueError(
            f"{where}: expected counts of n-grams up to order {options.order} or more, got order {header.order}"
        )
    if (header.vocab_size, header.end_of_text) != (options.vocab_size, options.end_of_text):
        raise ValueError(
            f"{where}: expected counts of {options.vocab_size} ids with end of text {options.end_of_text}, "
            f"got {header.vocab_size} with {header.end_of_text}"
        )
    if tokenizer and header.tokenizer and tokenizer != header.tokenizer:
        raise ValueError(f"{where}: expected counts of tokenizer {tokenizer}, got {header.tokenizer}")


def _shortened(batch: WindowCounts, order: int) -> Windows:
    """The windows cut to their last `order` tokens."""
    ends = batch.offsets[1:].astype(np.int64)
    lengths = np.minimum(np.diff(batch.offsets), order).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    at = np.arange(offsets[-1]) + np.repeat(ends - lengths - offsets[:-1], lengths)
    return Windows(offsets, batch.tokens[at], batch.count)
