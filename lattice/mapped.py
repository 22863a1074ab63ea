"""Memory-mapped tensors of safetensors files as numpy arrays, without copies.

The safetensors library copies tensors for numpy and has no bfloat16 there. It opens the file first and checks its
header; the offsets are then read from that header.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
BFLOAT16 = np.dtype("V2")  # distinguishes bfloat16 from uint16; see widen()


@contextmanager
def safetensors(path: str | Path, framework: str = "pt") -> Iterator[Any]:
    """Opens a safetensors file for tensors of torch ("pt") or numpy ("np"). ValueError if it is damaged."""
    try:
        with safe_open(path, framework) as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file, got one that cannot be read: {error}") from None


def map_tensors(path: Path) -> dict[str, NDArray]:
    """All tensors of a safetensors file as read-only arrays over the mapped file; bfloat16 as dtype V2.

    The file must not change while the arrays are in use. ValueError (a damaged file) and OSError name the file.
    """
    with safetensors(path, "np") as file:
        names = set(file.keys())
    with open(path, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(mapped[:8], "little")
    header = json.loads(mapped[8:start])
    header.pop("__metadata__", None)
    if set(header) != names:
        raise ValueError(f"{path}: the safetensors header names tensors twice")
    return {
        name: _array(path, mapped, name, start, entry["dtype"], entry["shape"], entry["data_offsets"])
        for name, entry in header.items()
    }


def widen(array: NDArray) -> NDArray:
    """bfloat16 (dtype V2) as float32; other arrays unchanged."""
    if array.dtype != BFLOAT16:
        return array
    return (np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _array(
    path: Path, mapped: mmap.mmap, name: str, start: int, dtype: str, shape: list[int], offsets: list[int]
) -> NDArray:
    kind = BFLOAT16 if dtype == "BF16" else np.dtype(DTYPES[dtype]) if dtype in DTYPES else None
    if kind is None:
        raise ValueError(f"{path}: {name}: expected dtype {', '.join(DTYPES)} or BF16, got {dtype}")
    begin, end = offsets
    count = math.prod(shape)
    if count * kind.itemsize != end - begin or not 0 <= begin <= end <= len(mapped) - start:
        raise ValueError(f"{path}: {name}: its shape and dtype do not match its bytes {begin}..{end}")
    if not count:
        return np.empty(shape, kind)
    return np.frombuffer(mapped, kind, count, start + begin).reshape(shape)


def load_npy(path: str | Path) -> NDArray[Any]:
    """The array of an .npy file, memory-mapped. ValueError if something follows it, such as a second array."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(array, np.memmap) and (more := os.path.getsize(path) - array.offset - array.nbytes):
        raise ValueError(f"a second array, or {more} other bytes after the first; save one array in a file")
    return array


def map_npy(path: str | Path) -> NDArray[Any]:
    """The flat integer array of an .npy file, memory-mapped. ValueError if it holds anything else."""
    try:
        array = load_npy(path)
    except (OSError, MemoryError):
        raise
    # numpy parses headers as Python and raises many kinds of errors. It takes unknown files for pickles, and its
    # message suggests loading them.
    except Exception as error:
        got = "something else, or objects" if "pickle" in str(error) else error
        raise ValueError(f"{path}: expected a .npy file of token ids, got {got}") from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iu":
        got = f"{array.dtype} {list(array.shape)}" if isinstance(array, np.ndarray) else "an archive"
        raise ValueError(f"{path}: expected a flat array of integers, got {got}")
    return array
