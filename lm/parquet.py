"""Text columns of Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rescore.lattice.extras import needed_for

ROWS = 64  # decoded at once; a row may be a book
STRINGS = ("string", "large_string", "string_view")


def ranges(path: Path, field: str, most: int) -> list[tuple[int, int | None]]:
    """The row groups of a file in ranges of at least one group and at most `most` bytes, unpacked, of all columns.

    ValueError if the file is no Parquet file or has no such column of text.
    """
    with opened(path) as file:
        _check_column(path, file, field)
        # Sizes of row groups, not of columns: on some damage pyarrow aborts over those.
        sizes = [file.metadata.row_group(i).total_byte_size for i in range(file.num_row_groups)]
    found, begin, size = [], 0, 0
    for i, own in enumerate(sizes):
        if i > begin and size + own > most:
            found.append((begin, i))
            begin, size = i, 0
        size += own
    return [*found, (begin, len(sizes))]


def texts(path: Path, field: str, begin: int, end: int | None) -> Iterator[tuple[int, bytes | None]]:
    """The rows of row groups begin..end: number in the file, from 1, and UTF-8 text, not yet checked; None for null."""
    import pyarrow as pa

    with opened(path) as file:
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
def opened(path: Path) -> Iterator[Any]:
    """A Parquet file, read in small blocks. ValueError in the block if it is damaged."""
    with needed_for("a Parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            yield file
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a Parquet file, or damaged: {error}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise ValueError(f"{path}: not a Parquet file, or damaged: {error}") from None


def _check_column(path: Path, file: Any, field: str) -> None:
    """ValueError unless there is one such column of text."""
    import pyarrow as pa

    schema = file.schema_arrow
    if schema.names.count(field) != 1:
        raise ValueError(
            f"{path}: expected a column {field!r}, got {', '.join(map(repr, schema.names[:20])) or 'none'}; "
            "name that of the text with --text-field"
        )
    kind = schema.field(field).type
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if str(value) not in STRINGS:
        raise ValueError(
            f"{path}: expected text in column {field!r}, got {kind}; name that of the text with --text-field"
        )
