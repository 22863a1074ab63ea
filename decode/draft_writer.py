"""Writing every step's drafts, with costs and accepted lengths, as Parquet or JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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
        rows = list(_rows(dump, block, worth, visited))
        if self.path.suffix == ".jsonl":
            self._stream.write("".join(json.dumps(row) + "\n" for row in rows).encode())
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        fields = {"dump": pa.string(), "task": pa.string(), "file": pa.string(), "sequence": pa.int64(), "position": pa.int64(), "rank": pa.int32(),
                  "tokens": pa.list_(pa.int32()), "cost": pa.float32(), "accepted": pa.int32()}
        schema = pa.schema(list(fields.items()))
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(self._stream, schema, compression="zstd")
        self._parquet.write_table(pa.Table.from_pylist(rows, schema))

    def close(self) -> None:
        if self._parquet is not None:
            self._parquet.close()
        self._stream.close()
        self._temporary.replace(self.path)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._stream.close()
        self._temporary.unlink(missing_ok=True)


def _rows(dump: str, block: Block, worth: Worth, visited: NDArray[np.int64]) -> Iterator[dict[str, Any]]:
    drafts, sequence_of, truth = worth.drafts, block.sequence_of, block.truth(visited)
    for row, true in zip(visited.tolist(), truth):
        sequence = int(sequence_of[row])
        for rank in range(int(drafts.count[row])):
            tokens = drafts.tokens[row, rank]
            yield {
                "dump": dump,
                "task": block.task,
                "file": block.file,
                "sequence": sequence + block.first_sequence,
                "position": row - int(block.offsets[sequence]),
                "rank": rank,
                "tokens": tokens[tokens >= 0].tolist(),
                "cost": round(float(drafts.cost[row, rank]), 6),
                "accepted": int(accepted_of_drafts(tokens[None, None], true[None])[0]),
            }
