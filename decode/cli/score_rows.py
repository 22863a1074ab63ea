"""The tab-separated rows of `rescore lm score`, one per document or token."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rescore.decode.cli.values import printable
from rescore.lm.build.tokens import Numbered
from rescore.lm.model.arpa import LN10
from rescore.lm.model.ngram import NGram
from rescore.lm.model.perplexity import Scored

LINE = ("file", "line", "tokens", "oov", "log10_p", "nats")
TOKEN = ("file", "line", "token", "order", "oov", "log10_p", "nats")


class ScoreRows:
    """Writes rows of documents, each ended by `end_of_text`."""

    def __init__(
        self, model: NGram, end_of_text: int, unknown: int | None, per_line: BinaryIO | None, per_token: BinaryIO | None
    ) -> None:
        """unknown: the id of <unk>, if any. per_line, per_token: None to write none."""
        self._words, self._eot, self._unknown = model.words, end_of_text, unknown
        self._per_line, self._per_token = per_line, per_token
        self._file, self._lines, self._documents = "", deque[int](), 0
        self._tokens, self._oov, self._nats = 0, 0, 0.0  # of the document that is being read
        for file, names in ((per_line, LINE), (per_token, TOKEN)):
            _write(file, [names])

    def reading(self, found: Iterable[Numbered], file: str) -> Iterator[NDArray[Any]]:
        """Yields the tokens of a file. Their scores must be added in the same order."""
        self._file, self._documents = printable(file), 0
        for documents in found:
            lines = documents.lines()
            if lines is None:  # a token file: documents are numbered
                first = self._documents + 1
                lines = list(range(first, first + int((documents.tokens == self._eot).sum())))
            self._documents += len(lines)
            self._lines.extend(lines)
            yield documents.tokens

    def add(self, scored: Scored) -> None:
        """Adds the next tokens; a document may come in several parts."""
        ends = (np.flatnonzero(scored.tokens == self._eot) + 1).tolist()
        size = len(scored.tokens)
        oov = np.zeros(size, bool) if self._unknown is None else scored.tokens == self._unknown
        rows = []
        for a, b in pairwise([0, *ends, *([size] if ends[-1:] != [size] else [])]):
            if self._per_token:
                _write(self._per_token, self._token_rows(scored, oov, a, b))
            self._tokens += b - a
            self._oov += int(oov[a:b].sum())
            self._nats += float(scored.cost[a:b].sum(dtype=np.float64))
            if b in ends[-1:] or (ends and b < ends[-1]):
                rows.append((self._file, self._lines.popleft(), self._tokens, self._oov, *_both(self._nats)))
                self._tokens, self._oov, self._nats = 0, 0, 0.0
        _write(self._per_line, rows)

    def _token_rows(self, scored: Scored, oov: NDArray[np.bool_], a: int, b: int) -> Iterator[tuple[Any, ...]]:
        columns = (array[a:b].tolist() for array in (scored.tokens, scored.order, oov, scored.cost))
        for token, order, unknown, nats in zip(*columns):
            text = str(token) if self._words is None else printable(self._words[token])
            yield (self._file, self._lines[0], text, order, int(unknown), *_both(nats))


def _both(nats: float) -> tuple[str, str]:
    """log10 p and -ln p."""
    return f"{nats / -LN10 + 0.0:.9g}", f"{nats:.9g}"


def _write(file: BinaryIO | None, rows: Iterable[tuple[Any, ...]]) -> None:
    if file:
        file.write("".join("\t".join(map(str, row)) + "\n" for row in rows).encode())
