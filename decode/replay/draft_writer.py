"""Writes the drafts of every step, with costs and accepted lengths, as Parquet or JSON lines."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.drafts import Drafts
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.extras import needed_for

SUFFIXES = (".parquet", ".jsonl")


class DraftWriter:
    """Writes one row per draft: dump, task, file, sequence (in the file), position, rank, tokens, cost, accepted.

    position: the dump row, from 0, whose heads predicted the draft; the draft follows the token at that position. A
    context manager; the caller owns the stream, which is complete when the context ends.
    """

    def __init__(self, stream: BinaryIO, suffix: str):
        """suffix: ".parquet" or ".jsonl"."""
        if suffix not in SUFFIXES:
            raise ValueError(f"drafts: expected {' or '.join(SUFFIXES)}, got {suffix or 'no suffix'}")
        self._stream = stream
        self._parquet: Any = _open_parquet(stream) if suffix == ".parquet" else None

    def add(self, dump: str, block: DumpBlock, drafts: Drafts, visited: NDArray[np.int64]) -> None:
        """Writes the drafts of the visited rows [n] of a block; `drafts` holds those of all its rows."""
        columns = _columns(dump, block, drafts, visited)
        if self._parquet is None:
            rows = zip(*columns.values())
            self._stream.write("".join(json.dumps(dict(zip(columns, row))) + "\n" for row in rows).encode())
        else:
            import pyarrow as pa

            self._parquet.write_table(pa.table(columns, self._parquet.schema))

    def __enter__(self) -> DraftWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes the end of the file. After an error it tries to, and suppresses failures."""
        if self._parquet is not None:
            with suppress(Exception) if error else nullcontext():
                self._parquet.close()


def _open_parquet(stream: BinaryIO) -> Any:
    with needed_for("writing drafts as Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    fields = {
        "dump": pa.string(),
        "task": pa.string(),
        "file": pa.string(),
        "sequence": pa.int64(),
        "position": pa.int64(),
        "rank": pa.int32(),
        "tokens": pa.list_(pa.int32()),
        "cost": pa.float32(),
        "accepted": pa.int32(),
    }
    return pq.ParquetWriter(stream, pa.schema(list(fields.items())), compression="zstd")


def _columns(dump: str, block: DumpBlock, drafts: Drafts, visited: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Returns the columns of all visited rows' drafts. Costs have nine digits, which restore the float32 exactly."""
    tokens, count = drafts.tokens[visited], drafts.count[visited]
    truth = block.truth(visited)[:, None, :]
    accepted = np.logical_and.accumulate((tokens == truth) & (truth >= 0), axis=-1).sum(axis=-1)
    line, rank = np.nonzero(np.arange(tokens.shape[1]) < count[:, None])
    row = visited[line]
    sequence = block.sequence_of[row]
    size = (tokens >= 0).sum(axis=-1)[line, rank].tolist()
    return {
        "dump": [dump.encode("utf-8", "replace").decode()] * len(row),
        "task": [block.task] * len(row),
        "file": [block.file] * len(row),
        "sequence": (sequence + block.first_sequence).tolist(),
        "position": (row - block.offsets[sequence]).tolist(),
        "rank": rank.tolist(),
        "tokens": [draft[:n] for draft, n in zip(tokens[line, rank].tolist(), size)],
        "cost": [float(f"{cost:.9g}") for cost in drafts.cost[visited][line, rank].tolist()],
        "accepted": accepted[line, rank].tolist(),
    }
