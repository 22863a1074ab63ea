"""What a Spark executor's Python does with its share of the documents: tokenize, take windows, count what it has at hand.

Nothing here imports pyspark. Executors need this package, numpy, pyarrow and, for text, tokenizers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rescore.lm.json_line import NoDocument, decoded, is_blank, text_of
from rescore.lm.text import BATCH, TextTokenizer
from rescore.lm.windows import Packing, group, join

COMBINE = 1 << 22  # windows counted together before they leave the worker
ROWS = 1 << 18  # of a record batch that is sent to Spark
EXAMPLES = 3

Skipped = dict[str, tuple[int, tuple[str, ...]]]
"""Documents passed over: reason to how many, and the first few with their files."""


def merge(left: Skipped, right: Skipped) -> Skipped:
    """The skipped documents of both."""
    merged = dict(left)
    for reason, (number, examples) in right.items():
        already, known = merged.get(reason, (0, ()))
        merged[reason] = (already + number, (known + examples)[:EXAMPLES])
    return merged


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One task's work, as it travels to the executors.

    kind       of the column `document`: "json" a line, "text" a string, both as bytes, or "tokens" a list of ids
    field      of a JSON line that holds the text
    tokenizer  gives the tokenizer.json's bytes, and is called there alone; None for tokens
    report     is told what was skipped, once a task
    """

    kind: str
    field: str
    packing: Packing
    tokenizer: Callable[[], bytes] | None
    end_of_text: str | None
    strict: bool
    report: Callable[[Skipped], None]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `document` and `file` to batches of key words and counts, no window twice among 4M."""
        skipped: Skipped = {}
        waiting: list[NDArray[np.int64]] = []
        size = 0
        for batch in batches:
            for first in range(0, batch.num_rows, BATCH):
                keys = self._keys(batch.slice(first, BATCH), skipped)
                waiting.append(keys)
                size += keys.shape[1]
                if size >= COMBINE:
                    yield from _counted(waiting)
                    waiting, size = [], 0
        if size:
            yield from _counted(waiting)
        if skipped:
            self.report(skipped)

    def _keys(self, batch: pa.RecordBatch, skipped: Skipped) -> NDArray[np.int64]:
        column, files = batch.column("document"), batch.column("file")
        documents: list[Any] = _lists(column) if self.kind == "tokens" else column.to_pylist()
        found = []
        for document, file in zip(documents, files):
            try:
                if self.kind != "json" or not is_blank(document):
                    found.append(self._document(document))
            except NoDocument as error:
                message = f"{file}: {error}"
                if self.strict:
                    raise ValueError(message) from None
                skipped.update(merge({error.reason: skipped.get(error.reason, (0, ()))}, {error.reason: (1, (message,))}))
        if self.tokenizer is not None:
            found = _opened(self.tokenizer(), self.end_of_text).encode(found)
        try:
            stream = join(found, self.packing.vocab_size, self.packing.eot)
        except ValueError as error:
            raise ValueError(f"{', '.join(sorted(set(files.to_pylist())))}: {error}") from None
        return self.packing.keys(stream)

    def _document(self, document: Any) -> Any:
        """The text, or the array of ids, of a row."""
        if document is None:
            raise NoDocument("null", "expected a document, got null")
        if self.kind == "tokens":
            return document
        return text_of(decoded(document), self.field) if self.kind == "json" else decoded(document)


def _lists(column: pa.Array) -> list[NDArray[np.integer[Any]] | None]:
    """The lists of a column as arrays, without a Python object for each id."""
    values = column.values
    if column.flatten().null_count:
        raise ValueError("expected ids, got null in a list of tokens")
    tokens = values.to_numpy(zero_copy_only=False)
    begins, ends = column.offsets[:-1].to_pylist(), column.offsets[1:].to_pylist()
    return [tokens[a:b] if there else None for a, b, there in zip(begins, ends, column.is_valid().to_pylist())]


def _counted(waiting: list[NDArray[np.int64]]) -> Iterator[pa.RecordBatch]:
    keys, count = group(np.concatenate(waiting, axis=1))
    names = [*(f"key{word}" for word in range(len(keys))), "count"]
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in (*keys, count)], names)
    for first in range(0, batch.num_rows, ROWS):
        yield batch.slice(first, ROWS)


@lru_cache(maxsize=1)
def _opened(raw: bytes, end_of_text: str | None) -> TextTokenizer:
    """One tokenizer a process, which uses one thread: Spark starts a process for each core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return TextTokenizer.from_bytes(raw, end_of_text)
