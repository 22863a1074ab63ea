"""The work of a Spark executor: tokenizes its share of the documents and counts their windows.

This module does not import pyspark. Executors need this package, numpy, pyarrow and, for text, tokenizers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.extras import needed_for
from rescore.lattice.in_batches import in_batches
from rescore.lm.build.documents import decode_utf8, json_text, refuse_end_of_text
from rescore.lm.build.vocabulary import BadText, Skipped
from rescore.lm.build.windows import Packing, group, join
from rescore.lm.build.word_ids import encoder_of
from rescore.lm.model.tokenizer import TextTokenizer

with needed_for("counting on Spark"):
    import pyarrow as pa

COMBINE = 1 << 22  # windows counted together before they leave the worker
ROWS = 1 << 18  # of a record batch that is sent to Spark
BATCH = 256  # documents tokenized at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """The work of one task, as sent to the executors.

    kind       of the column `document`: "json" a line, "text" a string, both as bytes, or "tokens" a list of ids
    field      the key of a JSON line that holds the text
    tokenizer  returns the bytes of tokenizer.json, called on executors only; None for tokens
    report     called with the skipped documents, once per task
    """

    kind: str
    field: str
    packing: Packing
    tokenizer: Callable[[], bytes] | None
    end_of_text: str | None
    strict: bool
    report: Callable[[Skipped], None]

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turns batches of `document` and `file` into batches of keys and counts, combined over 4M windows."""
        skipped = Skipped()
        keys = (
            self._keys(batch.slice(first, BATCH), skipped)
            for batch in batches
            for first in range(0, batch.num_rows, BATCH)
        )
        for waiting in in_batches(keys, lambda own: own.shape[1], COMBINE):
            yield from _counted(waiting)
        if skipped:
            self.report(skipped)

    def _keys(self, batch: pa.RecordBatch, skipped: Skipped) -> NDArray[np.int64]:
        column, files = batch.column("document"), batch.column("file")
        documents: list[Any] = _lists(column) if self.kind == "tokens" else column.to_pylist()
        found = []
        sources = []
        for document, file in zip(documents, files.to_pylist()):
            with self._passing_over(file, skipped):
                found.append(self._document(document))
                sources.append(file)
        if self.tokenizer is not None:
            found = [
                ids
                for ids, file in zip(encoder_of(_opened(self.tokenizer(), self.end_of_text))(found), sources)
                if self._is_whole(ids, file, skipped)
            ]
        try:
            stream = join(found, self.packing.vocab_size, self.packing.end_of_text)
        except ValueError as error:
            raise ValueError(f"{', '.join(sorted(set(files.to_pylist())))}: {error}") from None
        return self.packing.keys(stream)

    @contextmanager
    def _passing_over(self, file: str, skipped: Skipped) -> Iterator[None]:
        """Skips a document that cannot be used or, if strict, raises an error."""
        try:
            yield
        except BadText as fault:
            if self.strict:
                raise ValueError(f"{file}: {fault}") from None
            skipped.add(file, fault)

    def _is_whole(self, ids: NDArray[np.uint32], file: str, skipped: Skipped) -> bool:
        with self._passing_over(file, skipped):
            refuse_end_of_text(ids, self.packing.end_of_text)
            return True
        return False

    def _document(self, document: Any) -> Any:
        """The text, or the array of ids, of a row."""
        if document is None:
            raise BadText("no text", "expected a document, got null")
        if self.kind == "tokens":
            return document
        return json_text(decode_utf8(document), self.field) if self.kind == "json" else decode_utf8(document)


def _lists(column: pa.Array) -> list[NDArray[np.integer[Any]] | None]:
    """The lists of a column as arrays, without creating a Python object per id."""
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
    """One tokenizer per process, with one thread: Spark starts a process per core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return TextTokenizer.from_bytes(raw, end_of_text)
