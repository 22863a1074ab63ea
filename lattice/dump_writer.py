"""Writing dumps: sequence by sequence, in shards of bounded size, atomically."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from rescore.lattice.dump import crc32_of
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.dump_header import FILE_NAME, DumpHeader, ShardInfo, TaskInfo, read_header
from rescore.lattice.loops import is_loop

SHARD_BYTES = 32 << 20
POSITIVE_SLACK = 1e-3  # rounding of a log softmax near 0; more is an error
Sequence = dict[str, NDArray]


class DumpWriter:
    """A context manager that writes a dump. The dump appears under its name when the context ends without error.

        with DumpWriter("dump", header) as writer:
            writer.add("gsm8k", prompt=prompt, tokens=tokens, topk_ids=ids, topk_logp=logp, entropy=entropy)

    header: its tasks and shards are filled in by the writer. logp_dtype: float16 (default) or float32. Sequences go to
    a temporary folder beside `path`, which is renamed at the end and removed after an error.
    """

    def __init__(
        self, path: str | Path, header: DumpHeader, *, logp_dtype: Any = np.float16, shard_bytes: int = SHARD_BYTES
    ) -> None:
        self.path = Path(path)
        self.header = header
        self.logp_dtype = np.dtype(logp_dtype)
        if self.logp_dtype not in (np.dtype("float16"), np.dtype("float32")):
            raise TypeError(f"logp_dtype: expected float16 or float32, got {self.logp_dtype}")
        self.shard_bytes = shard_bytes
        self._id_dtype = np.dtype(np.uint16 if header.vocab_size <= 1 << 16 else np.int32)
        self._waiting: dict[str, list[Sequence]] = {}
        self._bytes: dict[str, int] = {}
        self._shards: list[ShardInfo] = []
        self._loops: dict[str, int] = {}
        self._folder: Path | None = None
        self._along_prompts: bool | None = None  # whether sequences have prompt_topk_*

    def __enter__(self) -> DumpWriter:
        if self.path.exists():
            raise FileExistsError(f"{self.path} exists; remove it first or write elsewhere")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder, self._folder = self._folder, None
        assert folder is not None
        try:
            if kind is None:
                self._finish(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # missing if it was renamed

    def add(
        self,
        task: str,
        *,
        prompt: NDArray,
        tokens: NDArray,
        topk_ids: NDArray,
        topk_logp: NDArray,
        entropy: NDArray,
        seeds: NDArray | None = None,
        prompt_topk_ids: NDArray | None = None,
        prompt_topk_logp: NDArray | None = None,
    ) -> None:
        """Adds one continuation of n tokens.

        prompt [m], tokens [n], topk_ids and topk_logp [n, h, K], entropy [n, h]: integers and floats of any width.
        seeds [n], one per position, for sampled dumps only. prompt_topk_* [m, K] for all sequences or for none. Values
        are checked as the reader checks them (ValueError).
        """
        if self._folder is None:
            raise RuntimeError("DumpWriter is a context manager: with DumpWriter(...) as writer: writer.add(...)")
        header = self.header
        tokens, prompt = _integers("tokens", tokens, 1), _integers("prompt", prompt, 1)
        shape = (len(tokens), header.heads, header.top_k)
        if not len(tokens):
            raise ValueError(f"task {task!r}: expected a sequence of at least one token, got none")
        TaskInfo(name=task, rows=1, sequences=1, loop_share=0.0)  # checks the name
        if (seeds is not None) != (header.kind == "sampled"):
            raise ValueError(
                f"seeds: a {header.kind} dump {'needs one seed per position' if seeds is None else 'has none'}"
            )
        sequence = {
            "tokens": tokens,
            "prompt_tokens": prompt,
            "topk_ids": _shaped("topk_ids", _integers("topk_ids", topk_ids, 3), shape),
            "topk_logp": _narrowed(_shaped("topk_logp", _not_positive(topk_logp), shape), self.logp_dtype),
            "entropy": _narrowed(_shaped("entropy", _floats("entropy", entropy), shape[:2]), self.logp_dtype),
        }
        if seeds is not None:
            sequence["seeds"] = _shaped("seeds", _seeds(seeds), shape[:1])
        if (prompt_topk_ids is not None) != (prompt_topk_logp is not None) or (
            self._along_prompts not in (None, prompt_topk_ids is not None)
        ):
            raise ValueError("prompt_topk_ids, prompt_topk_logp: expected both, for all sequences or for none")
        self._along_prompts = prompt_topk_ids is not None
        if prompt_topk_ids is not None:
            along = len(prompt), header.top_k
            ids, logp = _integers("prompt_topk_ids", prompt_topk_ids, 2), _not_positive(prompt_topk_logp)
            sequence["prompt_topk_ids"] = _shaped("prompt_topk_ids", ids, along)
            sequence["prompt_topk_logp"] = _narrowed(_shaped("prompt_topk_logp", logp, along), self.logp_dtype)
        _block(task, [sequence]).check(header.vocab_size, exact=header.kind == "greedy")
        for name in ("topk_ids", "prompt_topk_ids"):
            if name in sequence:
                sequence[name] = sequence[name].astype(self._id_dtype)
        self._waiting.setdefault(task, []).append(sequence)
        self._loops[task] = self._loops.get(task, 0) + is_loop(tokens)
        self._bytes[task] = self._bytes.get(task, 0) + sum(array.nbytes for array in sequence.values())
        if self._bytes[task] >= self.shard_bytes:
            self._flush(self._folder, task)

    def _flush(self, folder: Path, task: str) -> None:
        sequences, self._waiting[task], self._bytes[task] = self._waiting[task], [], 0
        if not sequences:
            return
        plain = re.sub(r"[^A-Za-z0-9_]", "_", task)[:80]
        path = folder / f"{plain}-{len(self._shards):05d}.safetensors"
        block = _block(task, sequences)
        arrays = {name: getattr(block, name) for name in ("offsets", "prompt_offsets", *sequences[0])}
        self._write(path, save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
        self._shards.append(
            ShardInfo(
                file=path.name,
                task=task,
                rows=block.rows,
                sequences=block.sequences,
                bytes=path.stat().st_size,
                crc32=crc32_of(path),
            )
        )

    def _finish(self, folder: Path) -> None:
        for task in self._waiting:
            self._flush(folder, task)
        if not self._shards:
            raise ValueError(f"{self.path}: no sequence was added; expected at least one")
        header = replace(
            self.header, tasks=tuple(self._task(name) for name in self._waiting), shards=tuple(self._shards)
        )
        self._write(folder / FILE_NAME, header.to_json().encode())
        read_header(folder / FILE_NAME)
        for path in folder.iterdir():
            _sync(path)
        folder.chmod(0o777 & ~_umask())  # mkdtemp makes folders private
        os.rename(folder, self.path)

    def _write(self, path: Path, content: bytes) -> None:
        """Writes a file; an OSError (a full disk, say) names the dump rather than the temporary file."""
        try:
            path.write_bytes(content)
        except OSError as error:
            error.filename = str(self.path)
            raise

    def _task(self, name: str) -> TaskInfo:
        parts = [shard for shard in self._shards if shard.task == name]
        sequences = sum(part.sequences for part in parts)
        return TaskInfo(
            name=name,
            rows=sum(part.rows for part in parts),
            sequences=sequences,
            loop_share=self._loops[name] / sequences,
        )


def _block(task: str, sequences: list[Sequence]) -> DumpBlock:
    arrays: dict[str, Any] = {name: np.concatenate([sequence[name] for sequence in sequences]) for name in sequences[0]}
    arrays.setdefault("seeds", None)
    return DumpBlock(
        task=task,
        file="the sequence added",
        first_row=0,
        first_sequence=0,
        offsets=_offsets(sequences, "tokens"),
        prompt_offsets=_offsets(sequences, "prompt_tokens"),
        **arrays,
    )


def _offsets(sequences: list[Sequence], name: str) -> NDArray[np.int64]:
    return np.cumsum([0, *(len(sequence[name]) for sequence in sequences)], dtype=np.int64)


def _integers(name: str, array: Any, ndim: int) -> NDArray[np.int32]:
    array = np.asarray(array)
    if not array.size and array.ndim == ndim:
        return array.astype(np.int32)
    if array.dtype.kind not in "iu" or array.ndim != ndim:
        raise TypeError(f"{name}: expected {ndim}-dimensional integers, got {array.dtype} {list(array.shape)}")
    if int(array.min()) < 0 or int(array.max()) > np.iinfo(np.int32).max:
        raise ValueError(f"{name}: expected token ids, got {array.min()}..{array.max()}")
    return array.astype(np.int32)


def _seeds(array: Any) -> NDArray[np.uint64]:
    array = np.asarray(array)
    if array.dtype.kind not in "iu":
        raise TypeError(f"seeds: expected integers, got {array.dtype}")
    return array.astype(np.uint64)


def _floats(name: str, array: Any) -> NDArray:
    array = np.asarray(array)
    if array.dtype.kind != "f":
        raise TypeError(f"{name}: expected floating point numbers, got {array.dtype}")
    return array


def _not_positive(logp: Any) -> NDArray:
    logp = _floats("topk_logp", logp)
    return np.where((logp > 0) & (logp < POSITIVE_SLACK), np.zeros((), logp.dtype), logp)


def _narrowed(array: NDArray, dtype: np.dtype) -> NDArray:
    """Converts to `dtype`. Values beyond float16 become infinite; the value check reports them with their place."""
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def _shaped(name: str, array: NDArray, shape: tuple[int, ...]) -> NDArray:
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {list(shape)} from tokens and header, got {list(array.shape)}")
    return array


def _sync(path: Path) -> None:
    """Flushes a file to disk, so that a renamed dump always has its contents, even after a power loss."""
    with open(path, "rb") as stream:
        os.fsync(stream.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
