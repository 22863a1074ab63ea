"""The table of results: a line for each pass of each drafter (docs/reference/table.md). Measures are functions over it.

Also the drafts themselves, a line each. Both are written as Parquet, or as JSON lines where pyarrow is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, BinaryIO

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from rescore.decode.draft.registry import split
from rescore.decode.replay.replay import Outcome
from rescore.lattice.checked import parse_object, validate
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.extras import needed_for
from rescore.lattice.tree import Drafts
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

    sequence  int64, the sequence's number
    position  int32, the row after whose token the pass drafts; -1 for the prompt's pass
    visited   bool, whether decoding makes this pass; others were evaluated for comparison
    drafted, accepted, tokens  int32, draft tokens verified and accepted, and tokens that the pass yields
    seconds   float32, of drafting, shared by the budgets of one search; NaN if not timed
    """

    sequence: NDArray[np.int64]
    position: NDArray[np.int32]
    visited: NDArray[np.bool_]
    drafted: NDArray[np.int32]
    accepted: NDArray[np.int32]
    tokens: NDArray[np.int32]
    seconds: NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence[Lines]) -> Lines:
        return cls(**{one.name: np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)})


def lines_of(block: DumpBlock, outcome: Outcome, first: int = 0) -> Lines:
    """The lines of a block's outcome. first: the number of its first sequence."""
    rows = np.concatenate((block.offsets[:-1] - 1, outcome.evaluated))  # the prompts' passes stand before row 0
    sequence = np.concatenate((np.arange(block.sequences), block.sequence_of[outcome.evaluated]))
    position = rows - block.offsets[sequence]
    order = np.lexsort((position, sequence))
    rows, sequence, position = rows[order], sequence[order], position[order]
    prompt = position < 0
    accepted, drafted = (
        np.where(prompt, 0, each[rows]).astype(np.int32) for each in (outcome.accepted, outcome.verified)
    )
    visited = np.zeros(block.rows, bool)
    visited[outcome.visited] = True
    left = block.offsets[sequence + 1] - rows - 1
    seconds = np.full(len(rows), np.nan, np.float32)
    if outcome.seconds is not None:
        seconds[~prompt] = outcome.seconds[rows[~prompt]]
    return Lines(
        sequence=sequence + first,
        position=position.astype(np.int32),
        visited=prompt | visited[rows],
        drafted=drafted,
        accepted=accepted,
        tokens=np.where(prompt, 1, np.minimum(accepted + 1, left)).astype(np.int32),
        seconds=seconds,
    )


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


def write_passes(writer: RecordWriter, dump: Dump, block: DumpBlock, outcomes: Mapping[str, Outcome]) -> None:
    """Writes the passes of every drafter over a block."""
    first = dump.number_of(block)
    for name, outcome in outcomes.items():
        write_lines(writer, {"dump": dump.path, "task": block.task}, name, lines_of(block, outcome, first))


def write_lines(writer: RecordWriter, group: Mapping[str, Any], name: str, lines: Lines) -> None:
    """Writes the passes of one drafter. group: their common columns; name: the drafter's, with its budget."""
    drafter, budget = split(name)
    own = {one.name: getattr(lines, one.name) for one in fields(Lines)}
    own["seconds"] = [None if second != second else second for second in lines.seconds.tolist()]
    shared = {**group, "dump": _plain(group["dump"]), "drafter": drafter, "budget": budget}
    every = own | {column: [value] * len(lines.sequence) for column, value in shared.items()}
    writer.write({column: every[column] for column in ROUNDS if column in every})


def read_table(path: Path) -> Iterator[tuple[dict[str, Any], Lines]]:
    """Reads a table of results: the lines of one drafter that follow each other, with what they have in common (`dump`,
    `task`, `drafter`, `budget`, and `batch` and `round` if the table has them).

    ValueError if the file is no such table.
    """
    numbers = {one.name: PASSES[one.name] for one in fields(Lines)}
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
            held.append(Lines(**{name: array[start:end] for name, array in arrays.items()}))
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


def write_drafts(
    writer: RecordWriter, dump: Dump, block: DumpBlock, drafts: Drafts, visited: NDArray[np.int64]
) -> None:
    """Writes the drafts of the visited rows [n] of a block, of which `drafts` holds those of all rows.

    Costs have nine digits, which restore the float32 exactly.
    """
    tokens, count = drafts.tokens[visited], drafts.count[visited]
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
            "cost": [float(f"{cost:.9g}") for cost in drafts.cost[visited][line, rank].tolist()],
            "accepted": accepted[line, rank],
        }
    )


def _plain(path: object) -> str:
    return str(path).encode("utf-8", "replace").decode()
