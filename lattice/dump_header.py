"""The header of a dump, `dump.json`. The format is described in docs/reference/dump-format.md."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, field, to_builtins

from rescore.lattice.checked import Checked, Sha256, checked, of_format, read_object
from rescore.lattice.sausage import MAX_SLOTS, MAX_WIDTH
from rescore.lattice.short_repr import short_repr

FORMAT = "rescore-dump"
VERSION = 2  # version 1 needs at least two heads and has no prompt_topk_*
VERSIONS = (1, VERSION)
FILE_NAME = "dump.json"
KINDS = ("greedy", "sampled", "forced")
MAX_JSON_BYTES = 16 << 20
# One path component, no leading dot.
_ShardName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\.safetensors\Z")]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Rows = Annotated[int, Meta(ge=1, le=2**48)]
_Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0.0, le=1.0)]  # digests tell 1 from 1.0


class ShardInfo(Checked, frozen=True, kw_only=True):
    """One shard: its file, task, rows n, sequences S and size; crc32 of the whole file, None if unknown."""

    file: _ShardName
    task: _Name
    rows: _Rows
    sequences: _Rows
    bytes: Annotated[int, Meta(ge=8, le=2**60)]
    crc32: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printable("task", self.task)
        _check_most("sequences", self.sequences, self.rows)


class TaskInfo(Checked, frozen=True, kw_only=True):
    """One task: rows, sequences, and the share of sequences that loop (`loop_count`)."""

    name: _Name
    rows: _Rows
    sequences: _Rows
    loop_share: _Share

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printable("name", self.name)
        _check_most("sequences", self.sequences, self.rows)


class DumpHeader(Checked, frozen=True, kw_only=True):
    """The header of a dump; V = vocab_size, h = heads, K = top_k. ValueError names an invalid field.

    kind "sampled" needs temperature and top_p, "greedy" and "forced" have neither. tokenizer_sha256 is the hash of the
    tokenizer's file, None if unknown; end_of_text a token id or None; provenance any JSON object.
    """

    model: _Name
    tokenizer_sha256: Sha256 | None
    vocab_size: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    heads: Annotated[int, Meta(ge=1, le=MAX_SLOTS + 1)]
    top_k: Annotated[int, Meta(ge=1, le=MAX_WIDTH)]
    kind: Annotated[str, Meta(pattern=rf"\A({'|'.join(KINDS)})\Z")]
    temperature: Annotated[int, Meta(ge=1, le=10**6)] | Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None
    top_p: Annotated[int, Meta(ge=1, le=1)] | Annotated[float, Meta(ge=1e-9, le=1.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    end_of_text: Annotated[int, Meta(ge=0)] | None = None
    tasks: tuple[TaskInfo, ...] = ()
    shards: tuple[ShardInfo, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_printable("model", self.model)
        _check_most("top_k", self.top_k, self.vocab_size)
        _check_most("end_of_text", self.end_of_text or 0, self.vocab_size - 1)
        if [self.temperature is None, self.top_p is None] != [self.kind != "sampled"] * 2:
            raise ValueError(
                f"temperature and top_p: expected both for a sampled dump and none for others, got {self.temperature} "
                f"and {self.top_p} for a {self.kind} one"
            )

    def to_json(self) -> str:
        """The text of dump.json, with a checksum of itself."""
        value = {"format": FORMAT, "version": VERSION, **to_builtins(self)}
        value["crc32"] = _crc32(value)
        return json.dumps(value, indent=2, allow_nan=False) + "\n"


def read_header(path: Path) -> DumpHeader:
    """The header of `path`, a dump.json. ValueError or OSError names the file and the field."""
    return parse_header(read_object(path, MAX_JSON_BYTES), path)


def parse_header(value: dict[str, Any], where: object = "dump") -> DumpHeader:
    """The header from a parsed dump.json. ValueError for unknown keys and wrong types."""
    fields = of_format(value, where, FORMAT, VERSIONS, "another version of rescore wrote this dump")
    crc32 = fields.pop("crc32", None)
    if crc32 is not None and crc32 != _crc32({key: one for key, one in value.items() if key != "crc32"}):
        raise ValueError(
            f"{where}: crc32: the checksum of the header does not match; it is damaged, "
            "or was edited by hand (then remove the key crc32)"
        )
    header = checked(fields, DumpHeader, where, whole=True)
    _check_totals(header, where)
    return header


def _check_totals(header: DumpHeader, where: object) -> None:
    """Raises ValueError unless the rows and sequences of shards and tasks agree."""
    names, shards = [task.name for task in header.tasks], header.shards
    if len({shard.file for shard in shards}) < len(shards):
        raise ValueError(f"{where}: shards: a file is listed twice")
    if not shards or len(set(names)) < len(names):
        raise ValueError(f"{where}: tasks, shards: expected at least one shard, and each task once")
    for task in header.tasks:
        parts = [shard for shard in shards if shard.task == task.name]
        totals = (sum(part.rows for part in parts), sum(part.sequences for part in parts))
        if totals != (task.rows, task.sequences):
            raise ValueError(
                f"{where}: task {task.name!r}: has {task.rows} rows and {task.sequences} sequences, "
                f"but its shards have {totals[0]} and {totals[1]}"
            )
    if unknown := {shard.task for shard in shards} - set(names):
        raise ValueError(f"{where}: shards: task {sorted(unknown)[0]!r} is not among the tasks")


def _crc32(value: dict[str, Any]) -> int:
    """crc32 of all keys but crc32, independent of layout and order of keys."""
    return zlib.crc32(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def _check_printable(name: str, value: str) -> None:
    if not value.isprintable():
        raise ValueError(f"{name}: expected printable characters, got {value!r:.250}")


def _check_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise ValueError(f"{name}: expected at most {most}, got {value!r:.60}")
