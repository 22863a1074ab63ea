"""Reading dumps: the predictions of every head at every position of many continuations, and their header, `dump.json`.

The format is described in docs/reference/dump-format.md.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, field, structs, to_builtins
from numpy.typing import NDArray

from rescore.lattice.checked import Checked, Sha256, of_format, read_object, validate, whole
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.mapped import map_tensors
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
VERIFY_BYTES = 64 << 20  # shards up to this size are verified whenever they are read
TOKEN_DTYPES = (np.dtype("uint16"), np.dtype("int32"))
FLOAT_DTYPES = (np.dtype("float16"), np.dtype("float32"))


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
    """One task: rows, sequences, and the share of sequences that loop (`is_loop`)."""

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
    header = validate(fields, DumpHeader, where, whole=True)
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dump:
    """An opened dump. `blocks` maps one shard at a time, so a dump may exceed memory."""

    path: Path
    header: DumpHeader
    allow_inexact: bool = False

    @classmethod
    def open(cls, path: str | Path, *, allow_inexact: bool = False) -> Dump:
        """Opens the dump in the folder `path` and checks its header and the sizes and arrays of all shards.

        Checksums of shards up to 64 MiB and all values are checked as they are read (`check` reads all); a greedy dump
        whose tokens are not head 1's first candidates is then refused, unless `allow_inexact`. ValueError and OSError
        name the file and the place.
        """
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: expected a folder with {FILE_NAME} and .safetensors shards")
        if not (path / FILE_NAME).is_file():
            raise FileNotFoundError(f"{path / FILE_NAME}: no such file: not a dump, or an incomplete one")
        dump = cls(path=path, header=read_header(path / FILE_NAME), allow_inexact=allow_inexact)
        for shard in dump.header.shards:
            dump._map(shard, verify=False)
        return dump

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(task.name for task in self.header.tasks)

    def blocks(self, task: str | None = None, rows: int = 4096) -> Iterator[DumpBlock]:
        """Yields all sequences (of one task), in order, in checked blocks of about `rows` rows, at least one sequence
        each.
        """
        if task is not None and task not in self.tasks:
            raise ValueError(f"task {task!r} is not in the dump {self.path}; it has {', '.join(self.tasks)}")
        whole(rows, "rows", 1)
        for shard in self.header.shards:
            if task in (None, shard.task):
                yield from self._blocks_of(shard, rows)

    @property
    def slots(self) -> int:
        """T = h - 1; 0 for the dump of a model without heads, which has no lattices."""
        return self.header.heads - 1

    def number_of(self, block: DumpBlock) -> int:
        """The number of a block's first sequence among those of its task."""
        before = 0
        for shard in self.header.shards:
            if shard.file == block.file:
                break
            before += shard.sequences * (shard.task == block.task)
        return before + block.first_sequence

    def texts(self, shard: str) -> Iterator[NDArray]:
        """Yields prompt and tokens of each sequence of a shard as one array of ids [n], not checked.

        shard: its file name.
        """
        (info,) = [one for one in self.header.shards if one.file == shard]
        arrays = self._map(info, verify=info.bytes <= VERIFY_BYTES)
        prompts, tokens = arrays["prompt_tokens"], arrays["tokens"]
        prompt_at, at = arrays["prompt_offsets"].tolist(), arrays["offsets"].tolist()
        for i in range(info.sequences):
            yield np.concatenate([prompts[prompt_at[i] : prompt_at[i + 1]], tokens[at[i] : at[i + 1]]])

    def check(self) -> None:
        """Reads the whole dump and checks values, checksums and loop shares. ValueError names the first error."""
        for shard in self.header.shards:
            self._map(shard, verify=True)
        for task in self.header.tasks:
            loops = sum(block.loops for block in self.blocks(task.name))
            if abs(loops / task.sequences - task.loop_share) > 1e-6:
                raise ValueError(
                    f"{self.path / FILE_NAME}: task {task.name!r}: loop_share is {task.loop_share}, "
                    f"but {loops} of {task.sequences} sequences loop"
                )

    def __repr__(self) -> str:
        header = self.header
        form = f"heads={header.heads}, top_k={header.top_k}, vocab_size={header.vocab_size:,}"
        return f"Dump({str(self.path)!r}, {header.kind}, {form}, tasks={list(self.tasks)})"

    def info(self) -> dict[str, Any]:
        """The facts in `dump.json`, and rows, sequences, bytes and loop share per task and overall."""
        header = self.header
        facts = {name: value for name, value in structs.asdict(header).items() if name not in ("tasks", "shards")}
        sequences = sum(task.sequences for task in header.tasks)
        tasks = [
            {"task": task.name, "rows": task.rows, "sequences": task.sequences, "loop_share": task.loop_share}
            | {"bytes": sum(shard.bytes for shard in header.shards if shard.task == task.name)}
            for task in header.tasks
        ]
        return facts | {
            "rows": sum(task.rows for task in header.tasks),
            "sequences": sequences,
            "bytes": sum(shard.bytes for shard in header.shards),
            "shards": len(header.shards),
            "loop_share": sum(task.loop_share * task.sequences for task in header.tasks) / sequences,
            "tasks": tasks,
        }

    def _map(self, shard: ShardInfo, *, verify: bool) -> dict[str, NDArray]:
        """The arrays of a shard, after checks of dtypes, shapes and offsets."""
        path = self.path / shard.file
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file, but {FILE_NAME} names it as a shard of task {shard.task!r}")
        size = path.stat().st_size
        if size != shard.bytes:
            raise ValueError(f"{path}: expected {shard.bytes} bytes, got {size}: the file is incomplete or was changed")
        if verify:
            _check_crc32(path, shard)
        arrays = map_tensors(path)
        _check_arrays(path, arrays, shard, self.header)
        return arrays

    def _blocks_of(self, shard: ShardInfo, rows: int) -> Iterator[DumpBlock]:
        arrays: dict[str, Any] = {"entropy": None, "seeds": None} | self._map(shard, verify=shard.bytes <= VERIFY_BYTES)
        whole = DumpBlock(task=shard.task, file=shard.file, first_row=0, first_sequence=0, **arrays)
        exact = self.header.kind == "greedy" and not self.allow_inexact
        first = 0
        while first < shard.sequences:
            last = int(np.searchsorted(whole.offsets, whole.offsets[first] + rows, side="right")) - 1
            last = min(max(last, first + 1), shard.sequences)
            block = whole.part(first, last)
            block.check(self.header.vocab_size, exact=exact)
            yield block
            first = last


def crc32_of(path: Path) -> int:
    """crc32 of a file, read in pieces."""
    value = 0
    with open(path, "rb") as stream:
        while piece := stream.read(1 << 20):
            value = zlib.crc32(piece, value)
    return value


def _check_crc32(path: Path, shard: ShardInfo) -> None:
    if shard.crc32 is not None and crc32_of(path) != shard.crc32:
        raise ValueError(
            f"{path}: the checksum does not match the one in {FILE_NAME}: the file is damaged or was replaced"
        )


def _check_arrays(path: Path, arrays: dict[str, NDArray], shard: ShardInfo, header: DumpHeader) -> None:
    n, h, k, s = shard.rows, header.heads, header.top_k, shard.sequences
    expected: dict[str, tuple[tuple[int | None, ...], tuple[np.dtype, ...]]] = {
        "tokens": ((n,), TOKEN_DTYPES),
        "offsets": ((s + 1,), (np.dtype("int64"),)),
        "prompt_tokens": ((None,), TOKEN_DTYPES),
        "prompt_offsets": ((s + 1,), (np.dtype("int64"),)),
        "topk_ids": ((n, h, k), TOKEN_DTYPES),
        "topk_logp": ((n, h, k), FLOAT_DTYPES),
    }
    if "entropy" in arrays:
        expected["entropy"] = ((n, h), FLOAT_DTYPES)
    if header.kind == "sampled" or "seeds" in arrays:
        expected["seeds"] = ((n,), (np.dtype("uint64"),))
    if "prompt_topk_ids" in arrays or "prompt_topk_logp" in arrays:
        expected["prompt_topk_ids"] = ((len(arrays.get("prompt_tokens", ())), k), TOKEN_DTYPES)
        expected["prompt_topk_logp"] = ((len(arrays.get("prompt_tokens", ())), k), FLOAT_DTYPES)
    if missing := [name for name in expected if name not in arrays]:
        raise ValueError(f"{path}: the array {missing[0]!r} is missing")
    if unknown := sorted(set(arrays) - set(expected)):
        raise ValueError(f"{path}: unknown array {unknown[0]!r}")
    for name, (shape, dtypes) in expected.items():
        array = arrays[name]
        if array.dtype not in dtypes:
            raise ValueError(
                f"{path}: {name}: expected {' or '.join(str(dtype) for dtype in dtypes)}, got {array.dtype}"
            )
        if array.ndim != len(shape) or any(want not in (None, got) for want, got in zip(shape, array.shape)):
            want = ["m" if size is None else size for size in shape]
            raise ValueError(f"{path}: {name}: expected shape {want} from {FILE_NAME}, got {list(array.shape)}")
    _check_offsets(path, "offsets", arrays["offsets"], n, least=1)
    _check_offsets(path, "prompt_offsets", arrays["prompt_offsets"], len(arrays["prompt_tokens"]), least=0)


def _check_offsets(path: Path, name: str, offsets: NDArray, total: int, least: int) -> None:
    """Checks that offsets rise from 0 to `total` by at least `least`. Hostile offsets may overflow a subtraction."""
    if offsets[0] != 0 or offsets[-1] != total:
        raise ValueError(f"{path}: {name}: expected to go from 0 to {total}, got {offsets[0]} to {offsets[-1]}")
    inside = (offsets >= 0) & (offsets <= total)
    bad = ~inside[1:] | (offsets[1:] < offsets[:-1]) | ((offsets[1:] == offsets[:-1]) & (least > 0))
    if bad.any():
        place = int(bad.argmax()) + 1
        raise ValueError(
            f"{path}: {name}[{place}] = {offsets[place]} after {offsets[place - 1]}: "
            f"expected at least {least} tokens per sequence and {total} in all"
        )
