"""Parquet files as inputs: texts of a column, by row groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rescore.lattice.extras import needed_for

ROWS = 64  # of Parquet decoded at once; a row may be as long as a book
STRINGS = ("string", "large_string", "string_view")


def row_groups(path: Path, field: str, most: int) -> list[tuple[int, int | None]]:
    """Ranges of row groups, each of one group or at most `most` bytes (uncompressed, all columns).

    ValueError if the file is not a Parquet file or has no such column of text.
    """
    with open_parquet(path) as file:
        _check_column(path, file, field)
        # Sizes of row groups, not of columns: reading the latter, pyarrow aborts the process on some damaged files.
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    found, begin, size = [], 0, 0
    for i, own in enumerate(sizes):
        if i > begin and size + own > most:
            found.append((begin, i))
            begin, size = i, 0
        size += own
    return [*found, (begin, len(sizes))]


def parquet_texts(path: Path, field: str, begin: int, end: int | None) -> Iterator[tuple[int, bytes | None]]:
    """Yields the rows of row groups begin..end - 1: number in the file, from 1, and unchecked UTF-8 (None for null)."""
    import pyarrow as pa

    with open_parquet(path) as file:
        _check_column(path, file, field)
        number = sum(file.metadata.row_group(i).num_rows for i in range(begin))
        groups = range(begin, file.num_row_groups if end is None else end)
        for batch in file.iter_batches(ROWS, row_groups=list(groups), columns=[field]):
            column = batch.column(0)
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            for value in column.cast(pa.large_binary()).to_pylist():
                number += 1
                yield number, value


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """Opens a Parquet file for reading in small blocks. Raises ValueError in the block if it is damaged."""
    with needed_for("reading a Parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        with (
            open(path, "rb") as stream,  # pyarrow opens no names that are not UTF-8
            pq.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False, page_checksum_verification=True) as file,
        ):
            yield file
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a Parquet file, or damaged: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path}: not a Parquet file, or damaged: {error}") from None


def _check_column(path: Path, file: Any, field: str) -> None:
    """Raises ValueError unless the file has exactly one such column, of text."""
    import pyarrow as pa

    schema = file.schema_arrow
    if schema.names.count(field) != 1:
        raise ValueError(
            f"{path}: expected a column {field!r}, got {', '.join(map(repr, schema.names[:20])) or 'none'}; "
            "name the column of the text with --text-field"
        )
    kind = schema.field(field).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if str(value) not in STRINGS:
        raise ValueError(
            f"{path}: expected text in column {field!r}, got {kind}; name the column of the text with --text-field"
        )
