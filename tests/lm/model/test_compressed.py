"""Text files as they come. What is whole and what is damaged is told by xz, gzip, bzip2 and zstd themselves."""

import bz2
import gzip
import io
import lzma
import shutil
import subprocess

import numpy as np
import pyarrow
import pytest
from support.refusals import refuses

from rescore.lm.model.compressed import Damaged, encoding_of, is_plain, lines_of, open_text, packing_of


def zstd(data: bytes) -> bytes:
    """With checksums where the program is at hand: pyarrow writes none."""
    if shutil.which("zstd") is None:
        return pyarrow.compress(data, codec="zstd", asbytes=True)
    return subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout


PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}
SUFFIX = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}
LINES = [f"word {number} \u00e9\n".encode() for number in range(3000)]
FIRST, SECOND = b"".join(LINES[:1500]), b"".join(LINES[1500:])
EVERY_PACKING = pytest.mark.parametrize("packing", PACK)


def content(path) -> bytes:
    with open_text(path) as stream:
        return stream.read()


def is_whole(packing: str, path) -> bool:
    """What the program of the format says."""
    if shutil.which(packing) is None:
        pytest.skip(f"no {packing}")
    return subprocess.run([packing, "-qt", path], capture_output=True).returncode == 0


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


@EVERY_PACKING
def test_streams_behind_the_first_are_read(tmp_path, packing):
    path = tmp_path / f"a.txt{SUFFIX[packing]}"
    path.write_bytes(PACK[packing](FIRST) + PACK[packing](b"") + PACK[packing](SECOND))
    assert content(path) == FIRST + SECOND and is_whole(packing, path)
    with open_text(path) as stream:
        assert list(lines_of(stream, 0, None)) == LINES


@pytest.mark.parametrize("zeros", [4, 1 << 14])
def test_padding_of_xz_is_skipped(tmp_path, zeros):
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(FIRST) + bytes(zeros) + lzma.compress(SECOND) + bytes(zeros))
    assert content(path) == FIRST + SECOND and is_whole("xz", path)
    path.write_bytes(lzma.compress(FIRST) + bytes(zeros + 3))
    assert not is_whole("xz", path)
    refuses(Damaged, lambda: content(path), "a.xz", "xz", zeros + 3)


@EVERY_PACKING
def test_damage_behind_the_first_stream_is_refused(tmp_path, packing):
    path = tmp_path / f"a.txt{SUFFIX[packing]}"
    first, second = PACK[packing](FIRST), PACK[packing](SECOND)
    for damaged in (
        first + b"X" + second[1:],
        first + flipped(second, len(second) // 2),
        first + second[:-1],
        first + second[:3],
        first + second + b"junk",
        b"X" + first[1:] + second,
        b"",
    ):
        path.write_bytes(damaged)
        refuses(Damaged, lambda: content(path), path.name, packing)
        # bzip2 takes what follows a whole stream for garbage to ignore.
        assert not is_whole(packing, path) or not damaged or packing == "bzip2"


@pytest.mark.parametrize("at", [-8, -1])
def test_checksums_of_gzip(tmp_path, at):
    packed = gzip.compress(FIRST)
    (tmp_path / "a.gz").write_bytes(flipped(packed, len(packed) + at))
    assert not is_whole("gzip", tmp_path / "a.gz")
    refuses(Damaged, lambda: content(tmp_path / "a.gz"), "a.gz", "gzip")


def test_frames_of_zstd_that_are_skipped(tmp_path):
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    (tmp_path / "a").write_bytes(skipped + PACK["zstd"](FIRST) + skipped + PACK["zstd"](SECOND))
    assert content(tmp_path / "a") == FIRST + SECOND


@EVERY_PACKING
def test_packings_are_told_by_content(tmp_path, packing):
    plain, packed = tmp_path / f"plain.txt{SUFFIX[packing]}", tmp_path / "packed.txt"
    plain.write_bytes(FIRST)
    packed.write_bytes(PACK[packing](FIRST))
    assert content(plain) == content(packed) == FIRST
    assert is_plain(plain) and not is_plain(packed)


@EVERY_PACKING
def test_packed_data_of_a_pipe(tmp_path, monkeypatch, packing):
    (tmp_path / "a").write_bytes(PACK[packing](FIRST))
    with open(tmp_path / "a", "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert content("-") == FIRST


def test_text_that_begins_as_compressed_data_do():
    assert [packing_of(text) for text in (b"BZh91 is a call sign", b"(\xc2\xb5 = 3)", b"P*M", b"")] == [None] * 4


ALPHABETS = {
    "Latin": "the cat sat on the mat\n",
    "Cyrillic": "\u043a\u043e\u0442 \u0441\u0438\u0434\u0435\u043b \u043d\u0430\n",
    "Thai": "\u0e41\u0e21\u0e27 \u0e19\u0e31\u0e48\u0e07\n",
    "Devanagari": "\u092c\u093f\u0932\u094d\u0932\u0940 \u092c\u0948\u0920\u0940\n",
}


@pytest.mark.parametrize("packing", [None, "gzip"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-16", "utf-32"])
@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_other_encodings_are_converted(tmp_path, alphabet, encoding, packing):
    text = ALPHABETS[alphabet] * 3000
    data = text.encode(encoding)
    (tmp_path / "a.txt").write_bytes(PACK[packing](data) if packing else data)
    assert content(tmp_path / "a.txt").decode() == text and not is_plain(tmp_path / "a.txt")
    (tmp_path / "b.txt").write_bytes(data[:-1])
    refuses(Damaged, lambda: content(tmp_path / "b.txt"), "b.txt", encoding[:6].upper())


@pytest.mark.parametrize("mark", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_byte_order_marks(tmp_path, mark):
    """They tell the encoding of alphabets without small bytes."""
    (tmp_path / "a.txt").write_bytes("\ufeff\u4e2d\u6587\u8bed\u8a00\n".encode(mark))
    assert content(tmp_path / "a.txt").decode() == "\u4e2d\u6587\u8bed\u8a00\n"


@pytest.mark.parametrize(
    "text",
    [
        b"".join(LINES),
        b"a\n" * 3000,
        b"a\nb\0" + b"a\n" * 3000,
        b"one\0two\0three\0" * 300,
        b"abc\0" * 1000,
        b"abcdefg\0" * 500,
        "\u4e2d\u6587\u8bed\u8a00 \u4e2d\n".encode() * 500,
        "\u043a\u043e\u0442 \u0441\u0438\u0434\u0435\u043b\n".encode() * 500,
        b"",
        b"a",
    ],
)
def test_utf8_stays_what_it_is(tmp_path, text):
    (tmp_path / "a.txt").write_bytes(text)
    assert content(tmp_path / "a.txt") == text and encoding_of(text) is None


def test_random_bytes_are_no_utf16():
    rng = np.random.default_rng(0)
    assert not [seed for seed in range(300) if encoding_of(b"a" + rng.bytes(4095))]
