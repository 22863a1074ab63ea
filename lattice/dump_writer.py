"""Writing dumps: sequence by sequence, in shards of bounded size, atomically, and resumable where asked.

The unfinished dump is the folder `PATH.work`:

    lock                 held by the writer
    dump/dump.json       names the files that are kept: a dump by itself, of the sequences so far
    dump/TASK-00000..    full shards
    dump/part.00000000..  the sequences after the last full shard, one file for each call of `keep`

Files are synced before dump.json names them and removed after it no longer does. So it is right whenever the writer is
killed, and files that it does not name are dropped by the next writer.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from safetensors.numpy import save

from rescore.lattice.atomic import (
    LOCK,
    atomic_file,
    difference,
    followed,
    lock_folder,
    refuse_others,
    sync,
    work_beside,
)
from rescore.lattice.checked import numbers, read_errors_of
from rescore.lattice.dump import FILE_NAME, Dump, DumpHeader, ShardInfo, TaskInfo, read_header
from rescore.lattice.dump_block import DumpBlock, is_loop

SHARD_BYTES = 32 << 20
POSITIVE_SLACK = 1e-3  # rounding of a log softmax near 0; more is an error
DUMP = "dump"  # the unfinished dump, in its work folder
PART = "part."  # begins a part's name; names of shards have no dot before .safetensors
ARRAYS = ("tokens", "prompt_tokens", "topk_ids", "topk_logp", "entropy", "seeds", "prompt_topk_ids", "prompt_topk_logp")
OPTIONAL = ("entropy", "prompt_topk_ids", "prompt_topk_logp")
Sequence = dict[str, NDArray]


class DumpWriter:
    """A context manager that writes a dump. The dump appears under its name when the context ends without error.

        with DumpWriter("dump", header) as writer:
            writer.add("gsm8k", prompt=prompt, tokens=tokens, topk_ids=ids, topk_logp=logp)

    header: its tasks and shards are filled in by the writer. logp_dtype: float16 (default) or float32. Sequences go to
    the folder `<path>.work`. After an error it holds those up to the last `keep`, or is removed if there was none; the
    next writer of the same path and header resumes after them (see `kept`). ValueError if the folder is in use or holds
    a dump of another header.
    """

    def __init__(
        self, path: str | Path, header: DumpHeader, *, logp_dtype: Any = np.float16, shard_bytes: int = SHARD_BYTES
    ) -> None:
        self.path = followed(path)
        self.header = header
        self.logp_dtype = np.dtype(logp_dtype)
        if self.logp_dtype not in (np.dtype("float16"), np.dtype("float32")):
            raise TypeError(f"logp_dtype: expected float16 or float32, got {self.logp_dtype}")
        self.shard_bytes = shard_bytes
        self._id_dtype = np.dtype(np.uint16 if header.vocab_size <= 1 << 16 else np.int32)
        self._work = work_beside(self.path)
        self._folder = self._work / DUMP
        self._lock: TextIO | None = None
        self._kept: dict[str, int] = {}
        self._shards: list[ShardInfo] = []  # full ones
        self._parts: list[ShardInfo] = []  # of the first sequences of `_waiting`
        self._waiting: dict[str, list[Sequence]] = {}
        self._bytes: dict[str, int] = {}
        self._loops: dict[str, int] = {}
        self._optional: set[str] | None = None  # arrays that all sequences have, beside those that they must

    def __enter__(self) -> DumpWriter:
        self._work.mkdir(parents=True, exist_ok=True)
        names = os.listdir(self._work)
        refuse_others(self._work, names, (LOCK, DUMP) if LOCK in names else (), "dump")
        self._lock = lock_folder(self._work, "dump")
        try:
            if self.path.exists():
                raise FileExistsError(f"{self.path} exists; remove it first or write elsewhere")
            self._folder.mkdir(exist_ok=True)
            self._resume()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._close()

    def kept(self, task: str) -> int:
        """The number of sequences of a task that earlier writers kept. The next one added comes after them."""
        return self._kept.get(task, 0)

    def keep(self) -> None:
        """Keeps the sequences added so far, whatever happens next."""
        for task, sequences in self._waiting.items():
            if fresh := sequences[_sequences(self._parts, task) :]:
                number = _sequences((*self._shards, *self._parts))  # no file that dump.json names has it
                self._parts.append(self._write(f"{PART}{number:08d}.safetensors", task, fresh))
        if self._waiting:
            self._write_header()

    def _resume(self) -> None:
        """Takes up what earlier writers kept, and removes what they did not."""
        if not (self._folder / FILE_NAME).exists():
            self._remove_all_but(())
            return
        with read_errors_of(
            self._folder, f"expected the rows of an interrupted run; remove {self._work} to start over"
        ):
            dump = Dump.open(self._folder)
            first = next(dump.blocks(rows=1))
            parts = tuple(shard for shard in dump.header.shards if shard.file.startswith(PART))
            blocks = list(replace(dump, header=structs.replace(dump.header, shards=parts)).blocks())
        self._refuse_other(dump.header, first.topk_logp.dtype)
        self._shards = [shard for shard in dump.header.shards if shard not in parts]
        self._parts = list(parts)
        self._optional = {name for name in OPTIONAL if getattr(first, name) is not None}
        for task in dump.header.tasks:
            self._kept[task.name], self._waiting[task.name], self._bytes[task.name] = task.sequences, [], 0
            self._loops[task.name] = round(task.loop_share * task.sequences)
        for one in (block.part(i, i + 1) for block in blocks for i in range(block.sequences)):
            arrays = {name: getattr(one, name) for name in ARRAYS}
            self._wait(one.task, {name: array for name, array in arrays.items() if array is not None})
        self._remove_all_but(dump.header.shards)

    def _refuse_other(self, kept: DumpHeader, logp_dtype: np.dtype) -> None:
        """ValueError if what was kept is of another header or dtype."""
        if differs := difference(_options(kept, logp_dtype), _options(self.header, self.logp_dtype)):
            raise ValueError(
                f"{self._work}: holds the rows of other inputs or options ({differs}); "
                "use the same, write to another folder, or remove this one to start over"
            )

    def add(
        self,
        task: str,
        *,
        prompt: NDArray,
        tokens: NDArray,
        topk_ids: NDArray,
        topk_logp: NDArray,
        entropy: NDArray | None = None,
        seeds: NDArray | None = None,
        prompt_topk_ids: NDArray | None = None,
        prompt_topk_logp: NDArray | None = None,
    ) -> None:
        """Adds one continuation of n tokens.

        prompt [m], tokens [n], topk_ids and topk_logp [n, h, K]: integers and floats of any width. seeds [n], one per
        position, for sampled dumps only. entropy [n, h] and prompt_topk_* [m, K] for all sequences or for none. Values
        are checked as the reader checks them (ValueError).
        """
        if self._lock is None:
            raise RuntimeError("DumpWriter is a context manager: with DumpWriter(...) as writer: writer.add(...)")
        header = self.header
        tokens, prompt = _integers("tokens", tokens, 1), _integers("prompt", prompt, 1)
        shape = (len(tokens), header.heads, header.top_k)
        if not len(tokens):
            raise ValueError(f"task {task!r}: expected a sequence of at least one token, got none")
        TaskInfo(name=task, rows=1, sequences=1, loop_share=0.0)  # checks the name
        if (seeds is not None) != (header.kind == "sampled"):
            raise ValueError(
                f"seeds: a {header.kind} dump "
                + ("needs one seed per position; without seeds its kind is 'forced'" if seeds is None else "has none")
            )
        sequence = {
            "tokens": tokens,
            "prompt_tokens": prompt,
            "topk_ids": _shaped("topk_ids", _integers("topk_ids", topk_ids, 3), shape),
            "topk_logp": _narrowed(_shaped("topk_logp", _not_positive("topk_logp", topk_logp), shape), self.logp_dtype),
        }
        if entropy is not None:
            found = _shaped("entropy", numbers(entropy, "entropy", "f"), shape[:2])
            sequence["entropy"] = _narrowed(found, self.logp_dtype)
        if seeds is not None:
            sequence["seeds"] = _shaped("seeds", _seeds(seeds), shape[:1])
        if (prompt_topk_ids is None) != (prompt_topk_logp is None):
            raise ValueError("prompt_topk_ids, prompt_topk_logp: expected both, for all sequences or for none")
        if prompt_topk_ids is not None:
            along = len(prompt), header.top_k
            ids = _integers("prompt_topk_ids", prompt_topk_ids, 2)
            logp = _not_positive("prompt_topk_logp", prompt_topk_logp)
            sequence["prompt_topk_ids"] = _shaped("prompt_topk_ids", ids, along)
            sequence["prompt_topk_logp"] = _narrowed(_shaped("prompt_topk_logp", logp, along), self.logp_dtype)
        optional = {*sequence} & {*OPTIONAL}
        if self._optional not in (None, optional):
            raise ValueError(f"{', '.join(sorted(self._optional ^ optional))}: expected for all sequences or for none")
        self._optional = optional
        _block(task, [sequence]).check(header.vocab_size, exact=header.kind == "greedy")
        for name in ("topk_ids", "prompt_topk_ids"):
            if name in sequence:
                sequence[name] = sequence[name].astype(self._id_dtype)
        self._wait(task, sequence)
        self._loops[task] = self._loops.get(task, 0) + is_loop(tokens)
        if self._bytes[task] >= self.shard_bytes:
            self._flush(task)

    def _wait(self, task: str, sequence: Sequence) -> None:
        self._waiting.setdefault(task, []).append(sequence)
        self._bytes[task] = self._bytes.get(task, 0) + sum(array.nbytes for array in sequence.values())

    def _flush(self, task: str) -> None:
        """Writes the waiting sequences as a full shard. Their parts are removed once dump.json names it instead."""
        sequences, self._waiting[task], self._bytes[task] = self._waiting[task], [], 0
        self._parts = [part for part in self._parts if part.task != task]
        if sequences:
            plain = re.sub(r"[^A-Za-z0-9_]", "_", task)[:80]
            self._shards.append(self._write(f"{plain}-{len(self._shards):05d}.safetensors", task, sequences))

    def _write(self, file: str, task: str, sequences: list[Sequence]) -> ShardInfo:
        block = _block(task, sequences)
        arrays = {name: getattr(block, name) for name in ("offsets", "prompt_offsets", *sequences[0])}
        content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        with atomic_file(self._folder / file) as stream:
            stream.write(content)
        return ShardInfo(
            file=file,
            task=task,
            rows=block.rows,
            sequences=block.sequences,
            bytes=len(content),
            crc32=zlib.crc32(content),
        )

    def _finish(self) -> None:
        for task in self._waiting:
            self._flush(task)
        if not self._shards:
            raise ValueError(f"{self.path}: no sequence was added; expected at least one")
        self._write_header()
        os.rename(self._folder, self.path)
        sync(self.path.parent)

    def _write_header(self) -> None:
        """Writes dump.json for what is on disk, and removes files that it does not name."""
        shards = (*self._shards, *self._parts)
        header = structs.replace(self.header, tasks=tuple(self._task(name) for name in self._waiting), shards=shards)
        with atomic_file(self._folder / FILE_NAME) as file:
            file.write(header.to_json().encode())
        read_header(self._folder / FILE_NAME)
        self._remove_all_but(shards)

    def _task(self, name: str) -> TaskInfo:
        parts = [shard for shard in (*self._shards, *self._parts) if shard.task == name]
        sequences = _sequences(parts)
        return TaskInfo(
            name=name,
            rows=sum(part.rows for part in parts),
            sequences=sequences,
            loop_share=self._loops[name] / sequences,
        )

    def _remove_all_but(self, shards: Collection[ShardInfo]) -> None:
        named = {FILE_NAME, *(shard.file for shard in shards)}
        for path in self._folder.iterdir():
            if path.name not in named:
                path.unlink()

    def _close(self) -> None:
        """Unlocks the work folder, and removes it if it keeps nothing."""
        assert self._lock is not None
        if not (self._folder / FILE_NAME).exists():
            shutil.rmtree(self._folder, ignore_errors=True)
            (self._work / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # not empty: of another writer by now
                self._work.rmdir()
        self._lock.close()
        self._lock = None


def kept_sequences(path: Path) -> int:
    """The number of sequences that writers of the dump `path` kept and did not finish."""
    try:
        return sum(task.sequences for task in read_header(work_beside(path) / DUMP / FILE_NAME).tasks)
    except FileNotFoundError:  # nothing kept, or finished by now
        return 0


def _options(header: DumpHeader, logp_dtype: np.dtype) -> dict[str, Any]:
    """What all sequences of a dump have in common."""
    facts = json.loads(structs.replace(header, tasks=(), shards=()).to_json())
    return {**facts, "crc32": None, "logp_dtype": str(logp_dtype)}


def _sequences(shards: Collection[ShardInfo], task: str | None = None) -> int:
    return sum(shard.sequences for shard in shards if task in (None, shard.task))


def _block(task: str, sequences: list[Sequence]) -> DumpBlock:
    arrays: dict[str, Any] = {name: np.concatenate([sequence[name] for sequence in sequences]) for name in sequences[0]}
    return DumpBlock(
        task=task,
        file="the sequence added",
        first_row=0,
        first_sequence=0,
        offsets=_offsets(sequences, "tokens"),
        prompt_offsets=_offsets(sequences, "prompt_tokens"),
        **{"entropy": None, "seeds": None} | arrays,
    )


def _offsets(sequences: list[Sequence], name: str) -> NDArray[np.int64]:
    return np.cumsum([0, *(len(sequence[name]) for sequence in sequences)], dtype=np.int64)


def _integers(name: str, array: Any, ndim: int) -> NDArray[np.int32]:
    array = numbers(array, name)
    if not array.size and array.ndim == ndim:
        return array.astype(np.int32)
    if array.ndim != ndim:
        raise TypeError(f"{name}: expected {ndim}-dimensional integers, got {array.dtype} {list(array.shape)}")
    if int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int32).max:
        raise ValueError(f"{name}: expected token ids, got {array.min()}..{array.max()}")
    return array.astype(np.int32)


def _seeds(array: Any) -> NDArray[np.uint64]:
    array = numbers(array, "seeds")
    if array.size and array.min() < 0:
        raise ValueError(f"seeds: expected integers of 64 bits from 0, got {array.min()}")
    return array.astype(np.uint64)


def _not_positive(name: str, logp: Any) -> NDArray:
    logp = numbers(logp, name, "f")
    return np.where((logp > 0) & (logp < POSITIVE_SLACK), np.zeros((), logp.dtype), logp)


def _narrowed(array: NDArray, dtype: np.dtype) -> NDArray:
    """Converts to `dtype`. Values beyond float16 become infinite; the value check reports them with their place."""
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _shaped(name: str, array: NDArray, shape: tuple[int, ...]) -> NDArray:
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {list(shape)} from tokens and header, got {list(array.shape)}")
    return array
