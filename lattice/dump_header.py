"""The header of a dump, `dump.json`. The format is described in docs/reference/dump-format.md."""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rescore.lattice.sausage import MAX_SLOTS, MAX_WIDTH
from rescore.lattice.short_repr import short_repr

FORMAT = "rescore-dump"
VERSION = 2  # version 1 needs at least two heads and has no prompt_topk_*
VERSIONS = (1, VERSION)
FILE_NAME = "dump.json"
KINDS = ("greedy", "sampled", "forced")
MAX_JSON_BYTES = 16 << 20
SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,199}\.safetensors")  # one path component, no leading dot
NAME = "a string of 1 to 200 printable characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardInfo:
    """One shard: its file, task, rows n, sequences S and size; crc32 of the whole file, None if unknown."""

    file: str
    task: str
    rows: int
    sequences: int
    bytes: int
    crc32: int | None = None

    def __post_init__(self) -> None:
        where = f"shard {self.file!r}"
        if not isinstance(self.file, str) or not SHARD_NAME.fullmatch(self.file):
            raise ValueError(
                f"{where}: expected the plain name of a .safetensors file beside {FILE_NAME}, without folders"
            )
        _check_name(f"{where}: task", self.task)
        _check_int(f"{where}: rows", self.rows, 1, 2**48)
        _check_int(f"{where}: sequences", self.sequences, 1, self.rows)
        _check_int(f"{where}: bytes", self.bytes, 8, 2**60)
        if self.crc32 is not None:
            _check_int(f"{where}: crc32", self.crc32, 0, 2**32 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """One task: rows, sequences, and the share of sequences that loop (`loop_count`)."""

    name: str
    rows: int
    sequences: int
    loop_share: float

    def __post_init__(self) -> None:
        _check_name("task name", self.name)
        _check_int(f"task {self.name!r}: rows", self.rows, 1, 2**48)
        _check_int(f"task {self.name!r}: sequences", self.sequences, 1, self.rows)
        _check_float(f"task {self.name!r}: loop_share", self.loop_share, 0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpHeader:
    """The header of a dump; V = vocab_size, h = heads, K = top_k. ValueError names an invalid field.

    kind "sampled" needs temperature and top_p, "greedy" and "forced" have neither. tokenizer_sha256 is the hash of the
    tokenizer's file, None if unknown; end_of_text a token id or None; provenance any JSON object.
    """

    model: str
    tokenizer_sha256: str | None
    vocab_size: int
    heads: int
    top_k: int
    kind: str
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    end_of_text: int | None = None
    tasks: tuple[TaskInfo, ...] = ()
    shards: tuple[ShardInfo, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        _check_name("model", self.model)
        if self.tokenizer_sha256 is not None and not (
            isinstance(self.tokenizer_sha256, str) and re.fullmatch("[0-9a-f]{64}", self.tokenizer_sha256)
        ):
            raise ValueError(
                f"tokenizer_sha256: expected 64 hexadecimal digits in lower case or null, got {self.tokenizer_sha256!r}"
            )
        _check_int("vocab_size", self.vocab_size, 1, 2**31 - 1)
        _check_int("heads", self.heads, 1, MAX_SLOTS + 1)
        _check_int("top_k", self.top_k, 1, min(MAX_WIDTH, self.vocab_size))
        self._check_sampling()
        if self.end_of_text is not None:
            _check_int("end_of_text", self.end_of_text, 0, self.vocab_size - 1)
        if not isinstance(self.provenance, dict):
            raise ValueError(f"provenance: expected an object, got {type(self.provenance).__name__}")

    def _check_sampling(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.seed is not None:
            _check_int("seed", self.seed, 0, 2**63 - 1)
        if self.kind == "sampled":
            _check_float("temperature", self.temperature, 1e-6, 1e6)
            _check_float("top_p", self.top_p, 1e-9, 1.0)
        elif self.temperature is not None or self.top_p is not None:
            raise ValueError(
                f"temperature and top_p: a {self.kind} dump has none, got {self.temperature} and {self.top_p}"
            )

    def check_totals(self) -> None:
        """Raises ValueError unless the rows and sequences of shards and tasks agree."""
        names = [shard.file for shard in self.shards]
        if len(set(names)) < len(names):
            raise ValueError("shards: a file is listed twice")
        if not self.shards or len({task.name for task in self.tasks}) < len(self.tasks):
            raise ValueError("tasks, shards: expected at least one shard, and each task once")
        for task in self.tasks:
            parts = [shard for shard in self.shards if shard.task == task.name]
            totals = (sum(part.rows for part in parts), sum(part.sequences for part in parts))
            if totals != (task.rows, task.sequences):
                raise ValueError(
                    f"task {task.name!r}: has {task.rows} rows and {task.sequences} sequences, "
                    f"but its shards have {totals[0]} and {totals[1]}"
                )
        unknown = {shard.task for shard in self.shards} - {task.name for task in self.tasks}
        if unknown:
            raise ValueError(f"shards: task {sorted(unknown)[0]!r} is not among the tasks")

    def to_json(self) -> str:
        """The text of dump.json, with a checksum of itself."""
        value = {"format": FORMAT, "version": VERSION, **asdict(self)}
        value["crc32"] = _crc32(value)
        return json.dumps(value, indent=2, allow_nan=False) + "\n"


def read_header(path: Path) -> DumpHeader:
    """The header of `path`, a dump.json. ValueError or OSError names the file and the field."""
    size = path.stat().st_size
    if size > MAX_JSON_BYTES:
        raise ValueError(f"{path}: {size} bytes, expected at most {MAX_JSON_BYTES}: not a dump header")
    try:
        value = json.loads(
            path.read_bytes().decode("utf-8"), object_pairs_hook=_no_duplicates, parse_constant=_no_constant
        )
        return parse_header(value)
    except RecursionError:
        raise ValueError(f"{path}: nested too deeply for a dump header") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def parse_header(value: Any) -> DumpHeader:
    """The header from a parsed dump.json. ValueError for unknown keys and wrong types."""
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise ValueError(f'expected an object with "format": "{FORMAT}"')
    version = value.get("version")
    if type(version) is not int or version not in VERSIONS:
        raise ValueError(f"version: expected {VERSION}, got {version!r}; another version of rescore wrote this dump")
    value = dict(value)
    del value["format"], value["version"]
    crc32 = value.pop("crc32", None)
    if crc32 is not None and crc32 != _crc32({"format": FORMAT, "version": version, **value}):
        raise ValueError(
            "crc32: the checksum of the header does not match; it is damaged, "
            "or was edited by hand (then remove the key crc32)"
        )
    _check_keys("dump", value, DumpHeader)
    tasks = tuple(
        TaskInfo(**_check_keys(f"tasks[{i}]", item, TaskInfo)) for i, item in enumerate(_list("tasks", value))
    )
    shards = tuple(
        ShardInfo(**_check_keys(f"shards[{i}]", item, ShardInfo)) for i, item in enumerate(_list("shards", value))
    )
    header = DumpHeader(**{**value, "tasks": tasks, "shards": shards})
    header.check_totals()
    return header


def _crc32(value: dict[str, Any]) -> int:
    """crc32 of all keys but crc32, independent of layout and order of keys."""
    return zlib.crc32(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return value


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not a number in JSON")


def _check_keys(where: str, value: Any, kind: type) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, got {type(value).__name__}")
    fields = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    if missing := sorted(fields - set(value)):
        raise ValueError(f"{where}: the key {missing[0]!r} is missing")
    if unknown := sorted(set(value) - fields):
        raise ValueError(f"{where}: unknown key {unknown[0]!r}; put your own notes into provenance")
    return value


def _list(name: str, value: dict[str, Any]) -> list[Any]:
    if not isinstance(value[name], list):
        raise ValueError(f"{name}: expected a list, got {type(value[name]).__name__}")
    return value[name]


def _check_name(what: str, value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
        raise ValueError(f"{what}: expected {NAME}, got {value!r:.250}")


def _check_int(what: str, value: Any, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{what}: expected an integer in {low}..{high}, got {value!r:.60}")


def _check_float(what: str, value: Any, low: float, high: float) -> None:
    if type(value) not in (int, float) or not low <= value <= high or not math.isfinite(value):
        raise ValueError(f"{what}: expected a number in {low:g}..{high:g}, got {value!r:.60}")
