"""Reading dumps: the predictions of every head at every position of many continuations.

The format is described in docs/reference/dump-format.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.dump_header import FILE_NAME, DumpHeader, ShardInfo, read_header
from rescore.lattice.mapped import map_tensors

VERIFY_BYTES = 64 << 20  # shards up to this size are verified whenever they are read
TOKEN_DTYPES = (np.dtype("uint16"), np.dtype("int32"))
FLOAT_DTYPES = (np.dtype("float16"), np.dtype("float32"))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dump:
    """An opened dump. `blocks` maps one shard at a time, so a dump may exceed memory."""

    path: Path
    header: DumpHeader
    verify: bool | None = None
    allow_inexact: bool = False

    @classmethod
    def open(cls, path: str | Path, *, verify: bool | None = None, allow_inexact: bool = False) -> Dump:
        """Opens the dump in the folder `path` and checks its header and the sizes and arrays of all shards.

        verify: True checks the checksums of all shards now; None those of shards up to 64 MiB whenever they are
        read; False none. Values are checked as they are read; a greedy dump whose tokens are not head 1's first
        candidates is then refused, unless `allow_inexact`. ValueError and OSError name the file and the place.
        """
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"{path}: expected a folder with {FILE_NAME} and .safetensors shards")
        if not (path / FILE_NAME).is_file():
            raise FileNotFoundError(f"{path / FILE_NAME}: no such file: not a dump, or an incomplete one")
        dump = cls(path=path, header=read_header(path / FILE_NAME), verify=verify, allow_inexact=allow_inexact)
        for shard in dump.header.shards:
            dump._map(shard, bool(verify))
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
        if rows < 1:
            raise ValueError(f"rows: expected at least 1, got {rows}")
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
        arrays = self._map(info, self.verify is None and info.bytes <= VERIFY_BYTES)
        prompts, tokens = arrays["prompt_tokens"], arrays["tokens"]
        prompt_at, at = arrays["prompt_offsets"].tolist(), arrays["offsets"].tolist()
        for i in range(info.sequences):
            yield np.concatenate([prompts[prompt_at[i] : prompt_at[i + 1]], tokens[at[i] : at[i + 1]]])

    def check(self) -> None:
        """Reads the whole dump and checks values, checksums and loop shares. ValueError names the first error."""
        for shard in self.header.shards:
            self._map(shard, True)
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
        facts = {
            name: getattr(header, name)
            for name in (
                "model",
                "tokenizer_sha256",
                "vocab_size",
                "heads",
                "top_k",
                "kind",
                "temperature",
                "top_p",
                "seed",
                "end_of_text",
                "provenance",
            )
        }
        sequences = sum(task.sequences for task in header.tasks)
        tasks = [
            {
                "task": task.name,
                "rows": task.rows,
                "sequences": task.sequences,
                "loop_share": task.loop_share,
                "bytes": sum(shard.bytes for shard in header.shards if shard.task == task.name),
            }
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

    def _map(self, shard: ShardInfo, verify: bool) -> dict[str, NDArray]:
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
        small = self.verify is None and shard.bytes <= VERIFY_BYTES
        arrays = self._map(shard, small)
        exact = self.header.kind == "greedy" and not self.allow_inexact
        offsets, prompt_offsets = arrays["offsets"], arrays["prompt_offsets"]
        first = 0
        while first < shard.sequences:
            last = int(np.searchsorted(offsets, offsets[first] + rows, side="right")) - 1
            last = min(max(last, first + 1), shard.sequences)
            part = slice(int(offsets[first]), int(offsets[last]))
            prompts = slice(int(prompt_offsets[first]), int(prompt_offsets[last]))
            block = DumpBlock(
                task=shard.task,
                file=shard.file,
                first_row=part.start,
                first_sequence=first,
                tokens=arrays["tokens"][part],
                offsets=offsets[first : last + 1] - offsets[first],
                prompt_tokens=arrays["prompt_tokens"][prompts],
                prompt_offsets=prompt_offsets[first : last + 1] - prompt_offsets[first],
                topk_ids=arrays["topk_ids"][part],
                topk_logp=arrays["topk_logp"][part],
                entropy=arrays["entropy"][part],
                seeds=arrays["seeds"][part] if "seeds" in arrays else None,
                prompt_topk_ids=arrays["prompt_topk_ids"][prompts] if "prompt_topk_ids" in arrays else None,
                prompt_topk_logp=arrays["prompt_topk_logp"][prompts] if "prompt_topk_logp" in arrays else None,
            )
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
        "entropy": ((n, h), FLOAT_DTYPES),
    }
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
