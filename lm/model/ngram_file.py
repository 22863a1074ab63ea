"""The `.ngram` file: the automaton's compact arrays, mapped into memory.

lm/ngram-format.md describes every byte.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import stat
import struct
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rescore.lattice.atomic import atomic_file
from rescore.lattice.checked import parse_object
from rescore.lm.model.compile import Compact
from rescore.lm.model.grams import check_vocabulary

MAGIC = b"\x93NGRAM\r\n"
VERSION = 3
ALIGNMENT = 64
# Magic, version, sections, file bytes, V, order, states, arcs, next bits, crc32.
HEADER = struct.Struct("<8sIIQIIQQI8xI")
SECTION = struct.Struct("<24s4sIQQ16x")  # name, dtype, crc32, offset, bytes
MAX_SECTIONS = 16
MAX_METADATA_BYTES = 16 << 20
HUGE_PAGE = 2 << 20
VERIFIED_BYTES = 4 << 20  # files up to this size are verified by default, in about 25 ms


class Header(NamedTuple):
    magic: bytes
    version: int
    sections: int
    file_bytes: int
    vocab_size: int
    order: int
    states: int
    arcs: int
    next_bits: int
    crc32: int


class FileSection(NamedTuple):
    name: str
    dtype: str
    crc32: int
    offset: int
    bytes: int


def write(path: str | os.PathLike[str], model: Any) -> None:
    """Writes a model, an `NGram`, atomically."""
    _refuse_big_endian()
    compact = model.compact
    sections = {name: np.ascontiguousarray(array) for name, array in compact.sections.items()}
    sections["metadata"] = np.frombuffer(json.dumps(dict(model.metadata), sort_keys=True).encode(), np.uint8)
    if len(sections["metadata"]) > MAX_METADATA_BYTES:
        raise ValueError(
            f"metadata: expected at most {MAX_METADATA_BYTES} bytes of JSON, got {len(sections['metadata'])}"
        )
    if model.words is not None:
        sections["word_ends"], sections["words"] = _join_words(model.words)
    table, at = b"", _aligned(HEADER.size + SECTION.size * len(sections))
    for name, array in sections.items():
        table += SECTION.pack(
            name.encode(), array.dtype.str.replace("|", "<").encode(), zlib.crc32(array.data), at, array.nbytes
        )
        at = _aligned(at + array.nbytes)
    arcs, states = (int(compact.sizes[:, column].sum()) for column in (0, 3))
    facts = (MAGIC, VERSION, len(sections), at, model.vocab_size, model.order, states, arcs, compact.next_bits)
    checksum = zlib.crc32(HEADER.pack(*facts, 0) + table)
    with atomic_file(path) as file:
        file.write(HEADER.pack(*facts, checksum) + table)
        for array in sections.values():
            file.write(bytes(_aligned(file.tell()) - file.tell()))
            file.write(array.data.cast("B") if array.nbytes else b"")
        file.write(bytes(at - file.tell()))


def read(path: str | os.PathLike[str], verify: bool | None = None, resident: bool = False) -> dict[str, Any]:
    """Maps a model into memory and returns the fields of its `NGram`. ValueError names the file if it is not a complete
    file of the format.

    verify    also check the sections' checksums; None: only in files of at most 4 MiB. Without this check the time does
              not depend on the size of the file.
    resident  copy the file into this process's memory instead, in huge pages where the system has them
    """
    _refuse_big_endian()
    path = Path(path)
    data = _load(path) if resident else _map(path)
    try:
        header, sections = _head(data)
        if verify or (verify is None and header.file_bytes <= VERIFIED_BYTES):
            _verify(data, sections)
        return {
            "compact": _compact(data, sections, header),
            "order": header.order,
            "vocab_size": header.vocab_size,
            "words": _words(data, sections, header.vocab_size),
            "metadata": _metadata(data, sections),
        }
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def size_and_crc32(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Size and header checksum of a file, equal for files of equal content: the header has all sections' checksums."""
    path = Path(path)
    try:
        header, _ = _head(_map(path))
    except ValueError as error:
        raise error if str(path) in str(error) else ValueError(f"{path}: {error}") from error
    return header.file_bytes, header.crc32


def _map(path: Path) -> NDArray[np.uint8]:
    _size(path)
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    _ask_for_huge_pages(mapped)
    return np.frombuffer(mapped, np.uint8)


def _load(path: Path) -> NDArray[np.uint8]:
    size = _size(path)
    memory = _own_memory(-(-size // HUGE_PAGE) * HUGE_PAGE)
    _ask_for_huge_pages(memory)
    data = np.frombuffer(memory, np.uint8)[:size]
    with open(path, "rb") as file:
        if (got := file.readinto(data.data)) != size:
            raise ValueError(f"{path}: expected {size} bytes, got {got}; the file is being changed")
    data.flags.writeable = False
    return data


def _own_memory(size: int) -> mmap.mmap:
    """Private zeroed memory. Python's default, shared memory, usually gets no huge pages."""
    return mmap.mmap(-1, size) if os.name == "nt" else mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _ask_for_huge_pages(memory: mmap.mmap) -> None:
    """Requests huge pages, if the system has them: pages of 2 MiB avoid most TLB misses."""
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)


def _size(path: Path) -> int:
    """The size of a file, after checking that it may hold a model."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{path}: expected a regular file")
    if found.st_size < HEADER.size:
        raise ValueError(
            f"{path}: expected an .ngram file, got {found.st_size} bytes; the header alone takes {HEADER.size}"
        )
    return found.st_size


def _head(data: NDArray[np.uint8]) -> tuple[Header, dict[str, FileSection]]:
    """Header and section table, after checking them and the size of the file."""
    header = Header(*HEADER.unpack(data[: HEADER.size].tobytes()))
    if header.magic != MAGIC:
        raise ValueError(f"expected an .ngram file, which begins with {MAGIC!r}, got {header.magic!r}")
    if header.version < VERSION:
        raise ValueError(
            f"expected format version {VERSION}, got {header.version}; rebuild the model, or convert it to ARPA with "
            "the rescore that wrote it and from ARPA to .ngram with this one"
        )
    if header.version > VERSION:
        raise ValueError(f"expected format version {VERSION}, got {header.version}; a newer rescore may read it")
    if header.file_bytes != len(data):
        raise ValueError(
            f"expected {header.file_bytes} bytes from its header, got {len(data)}; the file is truncated or has grown"
        )
    if header.sections > MAX_SECTIONS or HEADER.size + header.sections * SECTION.size > len(data):
        raise ValueError(f"header: expected at most {MAX_SECTIONS} sections within the file, got {header.sections}")
    head = data[: HEADER.size + header.sections * SECTION.size].tobytes()
    table = head[HEADER.size :]
    if zlib.crc32(HEADER.pack(*header[:-1], 0) + table) != header.crc32:
        raise ValueError("header: its checksum does not match; the file is damaged")
    check_vocabulary(header.vocab_size, header.order)
    return header, _sections(table, len(head), len(data))


def _sections(table: bytes, at: int, file_bytes: int) -> dict[str, FileSection]:
    sections: dict[str, FileSection] = {}
    for fields in SECTION.iter_unpack(table):
        name, dtype = (text.rstrip(b"\0").decode("ascii", "replace") for text in fields[:2])
        section = FileSection(name, dtype, *fields[2:])
        if name in sections:
            raise ValueError(f"section {name!r}: expected once, got it twice")
        if section.offset % ALIGNMENT or section.offset < at or section.bytes > file_bytes - section.offset:
            raise ValueError(
                f"section {name!r}: expected an offset >= {at} that is a multiple of {ALIGNMENT}, and an end by byte "
                f"{file_bytes}, got {section.bytes} bytes at {section.offset}"
            )
        at = section.offset + section.bytes
        sections[name] = section
    return sections


def _verify(data: NDArray[np.uint8], sections: dict[str, FileSection]) -> None:
    for section in sections.values():
        if zlib.crc32(data[section.offset : section.offset + section.bytes].data) != section.crc32:
            raise ValueError(f"section {section.name!r}: its checksum does not match; the file is damaged")


def _compact(data: NDArray[np.uint8], sections: dict[str, FileSection], header: Header) -> Compact:
    """The arrays of the automaton, checked against the header; the core checks the remaining lengths."""
    sizes = _view(data, sections, "sizes", "<u8", header.order * 6).reshape(header.order, 6)
    for column, name in ((0, "arcs"), (3, "states")):
        if sum(sizes[:, column].tolist()) != getattr(header, name):
            raise ValueError(
                f"sizes: expected {getattr(header, name)} {name} from the header, got {sizes[:, column].tolist()}"
            )
    inner = header.arcs - header.vocab_size
    narrow = header.vocab_size <= 1 << 16
    return Compact(
        sizes=sizes,
        root_cost=_view(data, sections, "root_cost", "<f4", header.vocab_size),
        arc_token=_view(data, sections, "arc_token", *(("<u2", inner) if narrow else ("<u1", 3 * inner))),
        arcs=_view(data, sections, "arcs", "<u1", None),
        arc_book=_view(data, sections, "arc_book", "<f4", None),
        contexts=_view(data, sections, "contexts", "<u1", None),
        backoff_book=_view(data, sections, "backoff_book", "<f4", None),
        wide=_view(data, sections, "wide", "<u4", None),
        first_state=_view(data, sections, "first_state", "<u4", (header.order - 1) * (header.vocab_size + 1)),
        jumps=_view(data, sections, "jumps", "<u4", None),
        backoff_state=_view(data, sections, "backoff_state", "<u8", None),
        next_bits=header.next_bits,
    )


def _view(
    data: NDArray[np.uint8], sections: dict[str, FileSection], name: str, dtype: str, length: int | None
) -> NDArray[Any]:
    if name not in sections:
        raise ValueError(f"section {name!r}: missing; the file has {', '.join(sections) or 'none'}")
    section, item = sections[name], np.dtype(dtype).itemsize
    if section.dtype != dtype or section.bytes % item or length not in (None, section.bytes // item):
        raise ValueError(
            f"section {name!r}: expected {'any number' if length is None else length} of {dtype}, "
            f"got {section.bytes} bytes of {section.dtype!r}"
        )
    return data[section.offset : section.offset + section.bytes].view(dtype)


def _metadata(data: NDArray[np.uint8], sections: dict[str, FileSection]) -> dict[str, Any]:
    text = _view(data, sections, "metadata", "<u1", None)
    if len(text) > MAX_METADATA_BYTES:
        raise ValueError(f"metadata: expected at most {MAX_METADATA_BYTES} bytes, got {len(text)}")
    metadata = parse_object(text.tobytes(), "metadata", lenient=True)
    if "eot" in metadata:  # its name in files written before 2026-11-25
        metadata["end_of_text"] = metadata.pop("eot")
    return metadata


def _words(data: NDArray[np.uint8], sections: dict[str, FileSection], vocab_size: int) -> tuple[str, ...] | None:
    if "words" not in sections:
        return None
    text = _view(data, sections, "words", "<u1", None).tobytes()
    ends = _view(data, sections, "word_ends", "<u8", vocab_size)
    if ends[-1] != len(text) or (ends[1:] < ends[:-1]).any():
        raise ValueError(f"word_ends: expected {vocab_size} ascending offsets up to {len(text)}")
    limits = [0, *ends.tolist()]
    try:
        return tuple(text[a:b].decode() for a, b in zip(limits, limits[1:]))
    except UnicodeDecodeError as error:
        raise ValueError(f"words: expected UTF-8, got {error}") from error


def _join_words(words: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    try:
        encoded = [word.encode() for word in words]
    except UnicodeEncodeError as error:
        number = next(i for i, word in enumerate(words) if word == error.object)
        raise ValueError(f"word {number}: expected text that UTF-8 can encode, got {error.object!r}") from error
    ends = np.cumsum([len(word) for word in encoded], dtype=np.uint64)
    return ends, np.frombuffer(b"".join(encoded), np.uint8)


def _aligned(at: int) -> int:
    return -(-at // ALIGNMENT) * ALIGNMENT


def _refuse_big_endian() -> None:
    if sys.byteorder != "little":
        raise ValueError(".ngram files are little-endian: expected a little-endian machine, got a big-endian one")
