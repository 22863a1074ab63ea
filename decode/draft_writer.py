"""Writing every step's drafts, with costs and accepted lengths, as Parquet or JSON lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.replay import Worth, accepted_of_drafts
from rescore.lattice.block import Block

SUFFIXES = (".parquet", ".jsonl")


class DraftWriter:
    """One row per draft: dump, task, file, sequence (in the file), position, rank, tokens, cost, accepted.

    position: the row of the dump whose heads predicted the draft, from 0; the draft continues after the token of that
    position. The file appears under its name when `close` has been called; before, it has a temporary one.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if self.path.suffix not in SUFFIXES:
            raise ValueError(f"{path}: expected a name that ends in {' or '.join(SUFFIXES)}, got {self.path.suffix or 'no suffix'}")
        self._temporary = self.path.with_name(self.path.name + f".{os.getpid()}.tmp")
        self._parquet: Any = None
        self._stream = open(self._temporary, "wb")

    def add(self, dump: str, block: Block, worth: Worth, visited: NDArray[np.int64]) -> None:
        """The drafts of the visited rows of a block."""
        table = _table(dump, block, worth, visited)
        if self.path.suffix == ".jsonl":
            self._stream.write("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode())
            return
        import pyarrow.parquet as pq

        if self._parquet is None:
            self._parquet = pq.ParquetWriter(self._stream, table.schema, compression="zstd")
        self._parquet.write_table(table)

    def close(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
        self._stream.close()
        self._temporary.replace(self.path)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._stream.close()
        self._temporary.unlink(missing_ok=True)


def _table(dump: str, block: Block, worth: Worth, visited: NDArray[np.int64]) -> Any:
    """An Arrow table of the visited rows' drafts."""
    import pyarrow as pa

    tokens, cost = worth.drafts.tokens[visited], worth.drafts.cost[visited]
    here, rank = np.nonzero(np.arange(tokens.shape[1]) < worth.drafts.count[visited][:, None])
    rows, tokens, cost = visited[here], tokens[here, rank], cost[here, rank]
    sequence = block.sequence_of[rows]
    inside = tokens >= 0
    lists = np.concatenate([[0], inside.sum(axis=1).cumsum()]).astype(np.int32)
    columns = {
        "dump": pa.array([dump] * len(rows), pa.string()),
        "task": pa.array([block.task] * len(rows), pa.string()),
        "file": pa.array([block.file] * len(rows), pa.string()),
        "sequence": pa.array(sequence + block.first_sequence, pa.int64()),
        "position": pa.array(rows - block.offsets[sequence], pa.int64()),
        "rank": pa.array(rank, pa.int32()),
        "tokens": pa.ListArray.from_arrays(lists, pa.array(tokens[inside], pa.int32())),
        "cost": pa.array(cost, pa.float32()),
        "accepted": pa.array(accepted_of_drafts(tokens[:, None], block.truth(rows)), pa.int32()),
    }
    return pa.table(columns)
