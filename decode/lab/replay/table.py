"""The table of results: a line for each pass of each drafter (docs/reference/table.md). Measures are functions over it.

Also the drafts themselves, a line each. Both are written as Parquet, or as JSON lines where pyarrow is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, BinaryIO

import numpy as np
from msgspec import Meta
from msgspec.structs import asdict
from numpy.typing import NDArray

from rescore.decode.draft.registry import split
from rescore.lattice.checked import parse_object, validate
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.extras import needed_for
from rescore.lattice.tree import Drafts, Trees
from rescore.lm.build.parquet import open_parquet
from rescore.lm.model.compressed import open_text

SUFFIXES = (".parquet", ".jsonl")
CHUNK = 1 << 14  # lines of JSON read at once
PASSES = {
    "dump": "string",
    "task": "string",
    "sequence": "int64",
    "position": "int32",
    "drafter": "string",
    "budget": "int32",
    "visited": "bool",
    "drafted": "int32",
    "accepted": "int32",
    "tokens": "int32",
    "seconds": "float",
}
ROUNDS = PASSES | {"batch": "int32", "round": "int32"}  # of `rescore bench decode`, whose seconds are of whole passes
_INTEGERS = {bits: list[Annotated[int, Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]] for bits in (32, 64)}
_VALUES: dict[str, Any] = {
    "int32": _INTEGERS[32],
    "int64": _INTEGERS[64],
    "bool": list[bool],
    "float": list[float | None],
}
DRAFTS = {
    "dump": "string",
    "task": "string",
    "sequence": "int64",
    "position": "int32",
    "rank": "int32",
    "tokens": "int32s",
    "cost": "float",
    "accepted": "int32",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lines:
    """The passes of one drafter over the sequences of a block, in order: columns of one length.

    sequence  int64, the sequence's number in the block, in tables in its task
    position  int32, the row after whose token the pass drafts; -1 for the prompt's pass
    visited   bool, whether decoding makes this pass; others were evaluated for comparison
    drafted, accepted, tokens  int32, draft tokens verified and accepted, and tokens that the pass yields
    seconds   float32, of drafting, shared by the budgets of one search; NaN if not timed
    drafts    of drafters of paths, and of trees that are kept: those of the lines but the prompts', in order; not in
              tables
    """

    sequence: NDArray[np.int64]
    position: NDArray[np.int32]
    visited: NDArray[np.bool_]
    drafted: NDArray[np.int32]
    accepted: NDArray[np.int32]
    tokens: NDArray[np.int32]
    seconds: NDArray[np.float32]
    drafts: Drafts | Trees | None = None

    @classmethod
    def of_rows(
        cls,
        block: DumpBlock,
        rows: NDArray[np.int64],
        *,
        visited: NDArray[np.bool_],
        drafted: NDArray[np.int32],
        accepted: NDArray[np.int32],
        seconds: NDArray[np.float32] | None = None,
        drafts: Drafts | Trees | None = None,
    ) -> Lines:
        """The lines of the rows [m], ascending, that were drafted for, and of the prompts' passes. Columns: [m]."""
        firsts = np.searchsorted(rows, block.offsets[:-1])  # the prompts' passes stand before row 0

        def column(values: NDArray[Any], prompts: Any) -> NDArray[Any]:
            return np.insert(values, firsts, prompts)

        sequence = block.sequence_of[rows]
        left = block.offsets[sequence + 1] - rows - 1
        return cls(
            sequence=column(sequence, np.arange(block.sequences)).astype(np.int64),
            position=column(rows - block.offsets[sequence], -1).astype(np.int32),
            visited=column(visited, True),
            drafted=column(drafted, 0),
            accepted=column(accepted, 0),
            tokens=column(np.minimum(accepted + 1, left), 1).astype(np.int32),
            seconds=column(np.full(len(rows), np.nan, np.float32) if seconds is None else seconds, np.nan),
            drafts=drafts,
        )

    @classmethod
    def joined(cls, parts: Sequence[Lines]) -> Lines:
        """Those of several sequences, without their drafts."""
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        return cls(**columns)

    def part(self, first: int, last: int) -> Lines:
        """The lines of sequences first..last - 1."""
        start, end = np.searchsorted(self.sequence, (first, last)).tolist()
        columns: dict[str, Any] = {name: getattr(self, name)[start:end] for name in COLUMNS}
        columns["sequence"] = columns["sequence"] - first
        if self.drafts is not None:
            own = slice(start - first, end - last)  # every sequence has a line without a draft
            columns["drafts"] = type(self.drafts)(**{name: of[own] for name, of in asdict(self.drafts).items()})
        return Lines(**columns)

    @property
    def made(self) -> NDArray[np.bool_]:
        """Of the lines but the prompts', whether decoding makes them."""
        return self.visited[self.position >= 0]

    def rows(self, block: DumpBlock) -> NDArray[np.int64]:
        """The rows of the lines but the prompts'."""
        drafts = self.position >= 0
        return block.offsets[self.sequence[drafts]] + self.position[drafts]


COLUMNS = tuple(one.name for one in fields(Lines) if one.name in PASSES)


class RecordWriter:
    """Writes lines with the given fields to a stream, as ".parquet" or ".jsonl".

    A context manager; the caller owns the stream, which is complete when the context ends.
    """

    def __init__(self, stream: BinaryIO, suffix: str, fields: Mapping[str, str]):
        if suffix not in SUFFIXES:
            raise ValueError(f"lines: expected {' or '.join(SUFFIXES)}, got {suffix or 'no suffix'}")
        self._stream = stream
        self._parquet: Any = _open_parquet(stream, fields) if suffix == ".parquet" else None

    def write(self, columns: Mapping[str, Any]) -> None:
        """Writes lines, given as arrays or lists of one length by the names of the fields."""
        if self._parquet is None:
            lists = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns.values()]
            lines = (json.dumps(dict(zip(columns, line))) + "\n" for line in zip(*lists))
            self._stream.write("".join(lines).encode())
        else:
            import pyarrow as pa

            self._parquet.write_table(pa.table(dict(columns), self._parquet.schema))

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Writes the end of the file. After an error it tries to, and suppresses failures."""
        if self._parquet is not None:
            with suppress(Exception) if error else nullcontext():
                self._parquet.close()


def _open_parquet(stream: BinaryIO, fields: Mapping[str, str]) -> Any:
    with needed_for("writing Parquet"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    kinds = {"string": pa.string(), "bool": pa.bool_(), "int32": pa.int32(), "int64": pa.int64(), "float": pa.float32()}
    kinds["int32s"] = pa.list_(pa.int32())
    return pq.ParquetWriter(
        stream, pa.schema([(name, kinds[kind]) for name, kind in fields.items()]), compression="zstd"
    )


def write_passes(writer: RecordWriter, dump: Dump, block: DumpBlock, lines: Mapping[str, Lines]) -> None:
    """Writes the passes of every drafter over a block."""
    group = {"dump": dump.path, "task": block.task}
    for name, own in lines.items():
        write_lines(writer, group, name, replace(own, sequence=own.sequence + dump.number_of(block)))


def write_lines(writer: RecordWriter, group: Mapping[str, Any], name: str, lines: Lines) -> None:
    """Writes the passes of one drafter. group: their common columns; name: the drafter's, with its budget."""
    drafter, budget = split(name)
    own: dict[str, Any] = {column: getattr(lines, column) for column in COLUMNS}
    own["seconds"] = [None if second != second else second for second in lines.seconds.tolist()]
    shared = {**group, "dump": _plain(group["dump"]), "drafter": drafter, "budget": budget}
    every = own | {column: [value] * len(lines.sequence) for column, value in shared.items()}
    writer.write({column: every[column] for column in ROUNDS if column in every})


def read_table(path: Path) -> Iterator[tuple[dict[str, Any], Lines]]:
    """Reads a table of results: the lines of one drafter that follow each other, with what they have in common (`dump`,
    `task`, `drafter`, `budget`, and `batch` and `round` if the table has them).

    ValueError if the file is no such table.
    """
    numbers = {column: PASSES[column] for column in COLUMNS}
    before: dict[str, Any] | None = None
    held: list[Lines] = []
    for part in _parts(path):
        if missing := [name for name in PASSES if name not in part]:
            raise ValueError(f"{path}: expected the columns of a table of results, got none named {missing[0]!r}")
        shared = [name for name in ROUNDS if name in part and name not in numbers]
        keys = list(zip(*(part[name] for name in shared)))
        starts = [place for place, key in enumerate(keys) if place == 0 or key != keys[place - 1]]
        arrays = {name: _array(path, name, part[name], kind) for name, kind in numbers.items()}
        for start, end in zip(starts, [*starts[1:], len(keys)]):
            group = dict(zip(shared, keys[start]))
            if before not in (None, group):
                yield before, Lines.joined(held)
                held = []
            before = group
            columns: dict[str, Any] = {name: array[start:end] for name, array in arrays.items()}
            held.append(Lines(**columns))
    if before is not None:
        yield before, Lines.joined(held)


def _parts(path: Path) -> Iterator[dict[str, list[Any]]]:
    """The columns of a file, some lines at a time."""
    if path.suffix == ".jsonl":
        with open_text(path) as file:
            for number, lines in enumerate(iter(lambda: list(islice(file, CHUNK)), [])):
                rows = [
                    parse_object(line, f"{path}:{place}", lenient=True)
                    for place, line in enumerate(lines, number * CHUNK + 1)
                ]
                yield {name: [row.get(name) for row in rows] for name in ROUNDS if name in rows[0]}
        return
    with open_parquet(path) as file:
        for batch in file.iter_batches():
            yield {name: column.to_pylist() for name, column in zip(batch.column_names, batch.columns)}


def _array(path: Path, name: str, values: list[Any], kind: str) -> NDArray[Any]:
    """A column; NaN for null seconds."""
    return np.array(validate(values, _VALUES[kind], f"{path}: {name}"), "float32" if kind == "float" else kind)


def write_drafts(writer: RecordWriter, dump: Dump, block: DumpBlock, lines: Lines) -> None:
    """Writes the drafts of the passes that decoding makes over a block. Costs have nine digits, which restore the
    float32 exactly.
    """
    if not isinstance(lines.drafts, Drafts):  # nothing was drafted
        return
    visited, drafts = lines.rows(block)[lines.made], lines.drafts
    tokens, costs, count = (column[lines.made] for column in (drafts.tokens, drafts.cost, drafts.count))
    truth = block.truth(visited)[:, None, :]
    accepted = np.logical_and.accumulate((tokens == truth) & (truth >= 0), axis=-1).sum(axis=-1)
    line, rank = np.nonzero(np.arange(tokens.shape[1]) < count[:, None])
    row = visited[line]
    sequence = block.sequence_of[row]
    size = (tokens >= 0).sum(axis=-1)[line, rank].tolist()
    writer.write(
        {
            "dump": [_plain(dump.path)] * len(row),
            "task": [block.task] * len(row),
            "sequence": sequence + dump.number_of(block),
            "position": row - block.offsets[sequence],
            "rank": rank,
            "tokens": [draft[:n] for draft, n in zip(tokens[line, rank].tolist(), size)],
            "cost": [float(f"{cost:.9g}") for cost in costs[line, rank].tolist()],
            "accepted": accepted[line, rank],
        }
    )


def _plain(path: object) -> str:
    return str(path).encode("utf-8", "replace").decode()
