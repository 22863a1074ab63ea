"""Reducing full-vocabulary logits [n, h, V] on file to a dump, in bounded memory."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .dump import Dump, _check_offsets
from .dump_header import DumpHeader
from .dump_writer import DumpWriter
from .mapped import BFLOAT16, map_tensors, widen
from .top import BLOCK_BYTES, top_of_logits

FLOATS = (np.dtype("float16"), np.dtype("float32"), np.dtype("float64"), BFLOAT16)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Logits:
    """Logits [n, h, V] on file: `read(start, stop)` gives rows as floats, to be called for rising rows."""

    name: str
    shape: tuple[int, int, int]
    read: Callable[[int, int], NDArray]


def reduce_logits(
    logits_file: str | Path, tokens_file: str | Path, out: str | Path, header: DumpHeader, *, task: str, logp_dtype: type = np.float16
) -> Dump:
    """The dump made of a file of logits [n, h, V] and a file of the tokens that they belong to, written to `out`.

    logits_file: `.npy`, `.npz` or `.safetensors` with the array `logits` (or only one array); float32, float16 or
        bfloat16. n rows over all sequences: row i was predicted from the prompt and tokens[:i] of its sequence.
    tokens_file: `.npz` or `.safetensors` with integers tokens [n], offsets [S + 1] and, unless the prompts are
        unknown, prompt_tokens and prompt_offsets [S + 1]; for sampled dumps seeds [n]. May be the logits' file.
    header: V and h must be those of the logits; its top_k candidates are kept.
    """
    with open_logits(Path(logits_file)) as logits:
        expected = (header.heads, header.vocab_size)
        if logits.shape[1:] != expected:
            raise ValueError(f"{logits.name}: expected shape [n, h, V] = [n, {expected[0]}, {expected[1]}] by the header, got {list(logits.shape)}")
        arrays = _read_tokens(Path(tokens_file), logits.shape[0])
        with DumpWriter(out, header, logp_dtype=logp_dtype) as writer:
            for sequence in range(len(arrays["offsets"]) - 1):
                rows = slice(*arrays["offsets"][sequence : sequence + 2].tolist())
                prompt = slice(*arrays["prompt_offsets"][sequence : sequence + 2].tolist())
                ids, logp, entropy = _reduce(logits, rows, header.top_k)
                seeds = arrays["seeds"][rows] if "seeds" in arrays else None
                writer.add(task, prompt=arrays["prompt_tokens"][prompt], tokens=arrays["tokens"][rows], topk_ids=ids, topk_logp=logp, entropy=entropy, seeds=seeds)
    return Dump.open(out)


@contextmanager
def open_logits(path: Path) -> Iterator[Logits]:
    """The logits of a file: `.npy` and `.safetensors` are mapped, `.npz` is unpacked as it is read."""
    if path.suffix == ".npy":
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path}: not a .npy file, or damaged: {error}") from None
        yield _mapped(path, array)
    elif path.suffix == ".safetensors":
        tensors = map_tensors(path)
        yield _mapped(path, tensors[_only(path, list(tensors))])
    elif path.suffix == ".npz":
        with _open_zip(path) as archive, archive.open(_only(path, archive.namelist())) as stream:
            yield _packed(path, stream)
    else:
        raise ValueError(f"{path}: expected logits in a .npy, .npz or .safetensors file")


def _reduce(logits: Logits, rows: slice, k: int) -> tuple[NDArray, NDArray, NDArray]:
    _, h, vocab_size = logits.shape
    step = max(1, BLOCK_BYTES // (4 * h * vocab_size))
    parts = []
    for start in range(rows.start, rows.stop, step):
        stop = min(start + step, rows.stop)
        parts.append(top_of_logits(logits.read(start, stop), k, f"{logits.name}: logits", start))
    ids, logp, entropy = (np.concatenate(arrays) for arrays in zip(*parts))
    return ids, logp, entropy


def _check_logits(path: Path, shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, int, int]:
    if len(shape) != 3 or 0 in shape:
        raise ValueError(f"{path}: expected logits [n, h, V], got shape {list(shape)}")
    if dtype not in FLOATS:
        raise ValueError(f"{path}: expected float32, float16 or bfloat16 logits (in numpy files a 2-byte void), got {dtype}")
    return shape[0], shape[1], shape[2]


def _mapped(path: Path, array: NDArray) -> Logits:
    shape = _check_logits(path, array.shape, array.dtype)
    return Logits(name=str(path), shape=shape, read=lambda start, stop: widen(array[start:stop]))


def _packed(path: Path, stream) -> Logits:
    """A member of an .npz archive, which can only be read from front to back."""
    try:
        version = npy.read_magic(stream)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read_header(stream)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: the archive's member is no .npy file: {error}") from None
    if fortran:
        raise ValueError(f"{path}: the logits are in Fortran order; save np.ascontiguousarray(logits)")
    n, h, vocab_size = _check_logits(path, shape, dtype)
    row_bytes = h * vocab_size * dtype.itemsize
    done = 0

    def read(start: int, stop: int) -> NDArray:
        nonlocal done
        if start != done:
            raise ValueError(f"{path}: rows of an .npz archive come in order; expected row {done}, got {start}")
        data = _read_exactly(path, stream, (stop - start) * row_bytes)
        done = stop
        return widen(np.frombuffer(data, dtype).reshape(stop - start, h, vocab_size))

    return Logits(name=str(path), shape=(n, h, vocab_size), read=read)


def _read_exactly(path: Path, stream, size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        try:
            piece = stream.read(min(size - len(data), 1 << 22))
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise ValueError(f"{path}: damaged archive: {error}") from None
        if not piece:
            raise ValueError(f"{path}: the logits end early")
        data += piece
    return data


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: not an .npz archive, or damaged: {error}") from None


def _only(path: Path, names: list[str]) -> str:
    """The entry called logits, or the only one."""
    named = [name for name in names if name.removesuffix(".npy") == "logits"] or names
    if len(named) != 1:
        raise ValueError(f"{path}: expected an array named 'logits', or only one array, got {', '.join(names) or 'none'}")
    return named[0]


def _read_tokens(path: Path, rows: int) -> dict[str, NDArray]:
    """tokens, offsets, prompt_tokens, prompt_offsets and, if there, seeds; checked against the rows of the logits."""
    if path.suffix == ".safetensors":
        arrays = map_tensors(path)
    elif path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files if name != "logits"}
    else:
        raise ValueError(f"{path}: expected the tokens in a .npz or .safetensors file")
    for name in ("tokens", "offsets"):
        if name not in arrays:
            raise ValueError(f"{path}: expected the array {name!r}, got {', '.join(arrays) or 'none'}")
    if "prompt_offsets" not in arrays:
        arrays["prompt_offsets"] = np.zeros_like(arrays["offsets"])
    arrays.setdefault("prompt_tokens", np.empty(0, np.int32))
    for name in ("tokens", "offsets", "prompt_tokens", "prompt_offsets"):
        if arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu" or not (arrays[name].size or name == "prompt_tokens"):
            raise ValueError(f"{path}: {name}: expected integers of one dimension, got {arrays[name].dtype} {list(arrays[name].shape)}")
    if len(arrays["tokens"]) != rows:
        raise ValueError(f"{path}: expected one token for each of the {rows} rows of logits, got {len(arrays['tokens'])}")
    if len(arrays["prompt_offsets"]) != len(arrays["offsets"]):
        raise ValueError(f"{path}: expected as many prompts as sequences, got {len(arrays['prompt_offsets']) - 1} and {len(arrays['offsets']) - 1}")
    _check_offsets(path, "offsets", arrays["offsets"], rows, least=1)
    _check_offsets(path, "prompt_offsets", arrays["prompt_offsets"], len(arrays["prompt_tokens"]), least=0)
    return arrays
