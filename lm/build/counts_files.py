"""Window counts on disk, for exchange between machines: Parquet files and a `counts.json` beside them.

The columns are `ngram` list<int32>, a window (`windows.py`) in text order, and `count` int64. A window may occur in any
number of rows and files; its count is their sum. Files are untrusted, so everything is checked on reading.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from rescore.lattice.atomic import atomic_file, make_folder
from rescore.lattice.extras import needed_for
from rescore.lattice.in_batches import in_batches
from rescore.lm.build.counts import CountOptions, Run, Windows, count_run
from rescore.lm.build.windows import FILE_NAME, MAX_TOKENS, CountsHeader, read_counts_header

with needed_for("a folder of counts"):
    import pyarrow as pa
    import pyarrow.parquet as pq

SCHEMA = pa.schema(
    [pa.field("ngram", pa.list_(pa.field("element", pa.int32(), False)), False), pa.field("count", pa.int64(), False)]
)
READ_ROWS = 1 << 16
GROUP_ROWS = 1 << 20
FILE_ROWS = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class CountsFiles:
    """Opened counts: the header, the Parquet files, and whether these are all files of the header's folder."""

    header: CountsHeader
    paths: tuple[Path, ...]
    whole: bool

    def batches(self) -> Iterator[Windows]:
        """Yields all windows in batches of at most 65,536, in bounded memory. ValueError names file and row group."""
        total = 0
        for path in self.paths:
            for batch in _read(path, self.header):
                total += batch.total()
                yield batch
        if self.whole and total != self.header.tokens:
            folder = self.paths[0].parent
            raise ValueError(
                f"{folder}: expected counts that sum to {self.header.tokens} from {FILE_NAME}, got {total}; "
                "a file is missing or should not be there"
            )


def open_counts(path: str | os.PathLike[str]) -> CountsFiles:
    """Opens the counts of a folder, or of one .parquet file in it. ValueError or OSError if it holds none."""
    path = Path(path)
    if path.is_dir():
        if not (path / FILE_NAME).exists():
            raise ValueError(
                f"{path}: expected a folder with {FILE_NAME}, which is written last; the counting did not finish, "
                "or this is the wrong folder"
            )
        found = tuple(sorted(file for file in path.glob("*.parquet") if file.name[0] not in "._"))
        if not found:
            raise ValueError(f"{path}: expected .parquet files beside {FILE_NAME}, got none")
        return CountsFiles(header=read_counts_header(path / FILE_NAME), paths=found, whole=True)
    if path.suffix != ".parquet":
        raise ValueError(f"{path}: expected a folder of counts, or a .parquet file in one")
    return CountsFiles(header=read_counts_header(path.with_name(FILE_NAME)), paths=(path,), whole=False)


def write_counts(
    folder: str | os.PathLike[str],
    batches: Iterable[Windows],
    header: CountsHeader,
    *,
    file_rows: int = FILE_ROWS,
) -> CountsHeader:
    """Writes windows as Parquet files of about `file_rows` rows, then counts.json, and returns its header, the given
    one with the sum of the counts.

    The folder is created if needed and must be empty. After an error all written files are removed.
    """
    folder = Path(folder)
    make_folder(folder)
    if any(folder.iterdir()):
        raise ValueError(
            f"{folder}: expected an empty folder to write counts to; name another, or remove what is there"
        )
    groups, tokens = map(Windows.joined, in_batches(batches, lambda one: len(one.counts), GROUP_ROWS)), 0
    written: list[Path] = []
    try:
        ended = False
        while not ended:
            path = folder / f"part-{len(written):05d}.parquet"
            with atomic_file(path) as stream:
                added, ended = _write_file(stream, groups, file_rows)
            written.append(path)
            tokens += added
        header = structs.replace(header, tokens=tokens)
        with atomic_file(folder / FILE_NAME) as stream:
            stream.write(header.to_json().encode())
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return header


def windows_of(runs: Sequence[Run], options: CountOptions) -> Iterator[Windows]:
    """Yields all windows of the runs, each once, for `write_counts`."""
    for number in range(len(runs[0].slices) - 1):
        yield from count_run(runs, number, options)


def _write_file(stream: object, groups: Iterator[Windows], file_rows: int) -> tuple[int, bool]:
    """Writes one file. Returns the sum of its counts, and whether all windows are written."""
    rows = tokens = 0
    with pq.ParquetWriter(stream, SCHEMA, compression="zstd", write_page_checksum=True) as writer:
        for group in groups:
            ngram = pa.ListArray.from_arrays(
                pa.array(group.offsets.astype(np.int32)), pa.array(group.tokens), type=SCHEMA.field("ngram").type
            )
            writer.write_table(pa.table([ngram, pa.array(group.counts)], SCHEMA))
            tokens += group.total()
            rows += len(group.counts)
            if rows >= file_rows:
                return tokens, False
    return tokens, True


def _read(path: Path, header: CountsHeader) -> Iterator[Windows]:
    try:
        with (
            open(path, "rb") as stream,  # pyarrow opens no names that are not UTF-8
            pq.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True) as file,
        ):
            _check_schema(file.schema_arrow)
            for group in range(file.num_row_groups):
                where = f"row group {group}"
                _check_size(file.metadata.row_group(group), header, where)
                row = 0
                for batch in file.iter_batches(READ_ROWS, row_groups=[group], columns=["ngram", "count"]):
                    windows = _windows(batch, where)
                    _check(windows, header, where, row)
                    row += len(windows.counts)
                    yield windows
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ValueError(f"{path}: {error}") from None


def _check_schema(schema: pa.Schema) -> None:
    for name, expected in (("ngram", "list<int32>"), ("count", "int64")):
        if name not in schema.names:
            raise ValueError(f"expected the columns ngram and count, got {', '.join(schema.names)[:200] or 'none'}")
        kind = schema.field(name).type
        fits = (
            kind == pa.int64()
            if name == "count"
            else (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and kind.value_type == pa.int32()
        )
        if not fits:
            raise ValueError(f"column {name}: expected {expected}, got {str(kind):.100}")


def _check_size(group: pq.RowGroupMetaData, header: CountsHeader, where: str) -> None:
    """Checks a group's size before its pages are read: a few compressed bytes can hold any number of tokens."""
    most = header.order * group.num_rows
    for i in range(group.num_columns):
        column = group.column(i)
        if column.path_in_schema.startswith("ngram.") and column.num_values > most:
            raise ValueError(
                f"{where}: expected at most {most} tokens in {group.num_rows} windows, got {column.num_values}"
            )


def _windows(batch: pa.RecordBatch, where: str) -> Windows:
    ngram, count = batch.column("ngram"), batch.column("count")
    if ngram.null_count or count.null_count or ngram.flatten().null_count:
        raise ValueError(f"{where}: expected no nulls in ngram and count, got some")
    offsets = ngram.offsets.to_numpy()
    return Windows((offsets - offsets[0]).astype(np.int64), ngram.flatten().to_numpy(), count.to_numpy())


def _check(windows: Windows, header: CountsHeader, where: str, first: int) -> None:
    """Raises ValueError unless these are windows of the header's order, vocabulary and end-of-text, and counts >= 1."""
    offsets, tokens, count = windows
    lengths = np.diff(offsets)
    least, most = min(2, header.order), header.order  # the stream's first end-of-text is a context only, not a window

    def expect(right: NDArray[np.bool_], expected: str, got: NDArray[np.generic]) -> None:
        if not right.all():
            at = int(np.argmin(right))
            row = at if len(right) == len(count) else int(np.searchsorted(offsets, at, side="right")) - 1
            raise ValueError(f"{where}, row {first + row}: expected {expected}, got {got[at]}")

    expect((lengths >= least) & (lengths <= most), f"a window of {least}..{most} tokens", lengths)
    expect((count >= 1) & (count <= MAX_TOKENS), f"a count in 1..{MAX_TOKENS}", count)
    expect((tokens >= 0) & (tokens < header.vocab_size), f"ids in 0..{header.vocab_size - 1}", tokens)
    ends = tokens == header.end_of_text
    starts = ends[offsets[:-1]] if len(count) else np.empty(0, bool)
    expect(
        starts | (lengths == most),
        f"a window shorter than {most} to begin with end-of-text (these may be n-grams of every order)",
        lengths,
    )
    ends[offsets[:-1]] = ends[offsets[1:] - 1] = False
    expect(~ends, "end-of-text only first or last in a window", tokens)
