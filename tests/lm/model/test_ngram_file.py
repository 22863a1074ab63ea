import os
import random
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from support.fuzz import damage, times
from support.models import assert_same_model, use
from support.oracle_lm import random_tables
from support.refusals import refuses

from rescore.lm.model import example, ngram_file
from rescore.lm.model.formats import model_of
from rescore.lm.model.gram_rows import tables_of_rows
from rescore.lm.model.ngram import NGram
from rescore.lm.model.ngram_file import HEADER, SECTION


@pytest.fixture(scope="module")
def model() -> NGram:
    return replace(example.model(), metadata={"tokenizer": "abc", "note": "Größe"})


def test_files_are_opened_once_until_they_change(path, tmp_path):
    opened = model_of(path)
    assert model_of(str(path)) is opened and model_of(opened) is opened and model_of(None) is None
    (tmp_path / "next").write_bytes(path.read_bytes())
    os.utime(tmp_path / "next", ns=(1, 1))
    os.replace(tmp_path / "next", path)
    assert model_of(path) is not opened
    refuses(FileNotFoundError, lambda: model_of(tmp_path / "none.ngram"), "none.ngram")


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "model.ngram")
    return tmp_path / "model.ngram"


def sections(data: bytes) -> list[tuple]:
    """Of each section where its entry is in the file, and its fields; as far as the file has any."""
    number = min(struct.unpack_from("<I", data, 12)[0], (len(data) - HEADER.size) // SECTION.size, 100)
    return [(at, *SECTION.unpack_from(data, at)) for at in (HEADER.size + i * SECTION.size for i in range(number))]


def section(data: bytes, name: str) -> tuple:
    return next(own for own in sections(data) if own[1].rstrip(b"\0") == name.encode())


def sealed(data: bytes) -> bytes:
    """The file with all its checksums made right, as far as it has any."""
    out = bytearray(data)
    if len(out) < HEADER.size:
        return data
    for at, name, dtype, _, offset, size in sections(data):
        crc32 = zlib.crc32(bytes(out[offset : offset + min(size, len(out))]))
        SECTION.pack_into(out, at, name, dtype, crc32, offset, size)
    out[60:64] = bytes(4)
    out[60:64] = struct.pack("<I", zlib.crc32(bytes(out[: HEADER.size + len(sections(data)) * SECTION.size])))
    return bytes(out)


def test_round_trip(model, path):
    back = NGram.open(path)
    assert_same_model(back, model)
    assert back.words == model.words and back.metadata == model.metadata
    assert not back.compact.arcs.flags.writeable and not back.compact.arcs.flags.owndata
    assert back.info()["tokenizer"] == "abc"


@pytest.mark.parametrize("vocab_size", [65536, 65537])
def test_token_width_follows_the_vocabulary(tmp_path, vocab_size):
    rows = [np.zeros((1, 1), np.uint32), np.array([[vocab_size - 1, 3], [5, vocab_size - 1]], np.uint32)]
    model = NGram.from_tables(
        tables_of_rows(rows, [np.ones(1), np.ones(2)], [np.zeros(1)], vocab_size=vocab_size, unseen_cost=12.0)
    )
    assert model.compact.arc_token.nbytes == (2 if vocab_size == 65536 else 3) * 2
    model.save(tmp_path / "wide.ngram")
    back = NGram.open(tmp_path / "wide.ngram")
    assert_same_model(back, model)
    assert back.score([5, vocab_size - 1]).tolist() == [12.0, 1.0]


def test_a_failed_write_leaves_the_old_file(model, path):
    before = path.read_bytes()
    refuses(TypeError, lambda: replace(model, metadata={"bad": {1, 2}}).save(path))
    refuses(ValueError, lambda: replace(model, words=("\ud800",) * 6).save(path), "word 0", "UTF-8")
    assert path.read_bytes() == before and os.listdir(path.parent) == [path.name]
    (path.parent / f".{path.name}.{os.getpid()}.part").touch()
    refuses(FileExistsError, lambda: model.save(path), "another")


def put(at, value):
    return lambda data: data[:at] + value + data[at + len(value) :]


def in_field(name, field, value):
    def change(data):
        at, *fields = section(data, name)
        return put(at, SECTION.pack(*fields[:field], value, *fields[field + 1 :]))(data)

    return change


def in_data(name, value):
    return lambda data: put(section(data, name)[4], value)(data)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda data: b"", ["0", "64"]),
        (put(0, b"GGUF"), ["begins"]),
        (put(8, b"\x04"), ["3", "4"]),
        (put(8, b"\x02"), ["3", "2"]),
        (lambda data: data[:-64], ["truncated"]),
        (lambda data: data + b"x", ["truncated"]),
        (put(12, b"\xff\xff"), ["header", "16", "65535"]),
        (put(24, struct.pack("<I", (1 << 24) + 1)), ["vocabulary size", "1..16777216", "16777217"]),
        (put(28, struct.pack("<I", 8)), ["1..7", "8"]),
        (put(32, struct.pack("<Q", 1 << 60)), ["sizes", "1152921504606846976", "[1, 3, 1]"]),
        (put(40, struct.pack("<Q", 9)), ["sizes", "9", "[6, 3, 1]"]),
        (in_field("root_cost", 1, b"<f8"), ["'root_cost'", "6", "<f4", "24", "'<f8'"]),
        (in_field("arc_token", 4, 6), ["'arc_token'", "4", "6", "'<u2'"]),
        (in_field("jumps", 4, 8), ["jumps", "1", "2"]),
        (put(48, struct.pack("<I", 16)), ["next_bits", "15", "16"]),
        (in_field("arcs", 3, 4), ["'arcs'", "64"]),
        (in_field("words", 3, (1 << 64) - 64), ["'words'", "64"]),
        (in_field("arc_book", 0, b"arcs"), ["'arcs'"]),
        (in_field("word_ends", 0, b"endings"), ["'word_ends'"]),
        (in_data("metadata", b"{{"), ["metadata"]),
        (in_data("metadata", b'["a",1]' + b" " * 54), ["metadata"]),
        (in_data("words", b"\xff\xfe"), ["words", "UTF-8"]),
        (in_data("word_ends", b"\xff"), ["word_ends", "6", "34"]),
        (in_data("arcs", struct.pack("<fH", 1, 0)), ["contexts[4]"]),
        (in_data("root_cost", struct.pack("<f", float("nan"))), ["root_cost[0]"]),
        (in_data("arcs", struct.pack("<f", float("nan"))), ["arcs[6]"]),
        (in_data("backoff_state", bytes(32)), ["backoff_state[4]", "2"]),
        (in_data("contexts", struct.pack("<I", 1)), ["contexts[1]"]),
        (in_data("arc_token", struct.pack("<H", 6)), ["arc_token[6]", "1"]),
    ],
)
def test_damage_is_named(path, change, message):
    path.write_bytes(sealed(change(path.read_bytes())))
    refuses(ValueError, lambda: NGram.open(path), "model.ngram", *message)


def test_files_that_are_not_verified(path, monkeypatch):
    """Checksums find what has no shape; large files are verified on request, and damage is found where it is used."""
    data = bytearray(path.read_bytes())
    data[section(data, "arcs")[4] + 4] = 0xFF  # of the code behind the first cost
    path.write_bytes(data)
    refuses(ValueError, lambda: NGram.open(path), "'arcs'")
    monkeypatch.setattr(ngram_file, "VERIFIED_BYTES", len(data) - 1)
    model = NGram.open(path)
    refuses(RuntimeError, lambda: model.step(model.start([example.LIONEL]), example.MESSI), "arcs[6]")
    refuses(ValueError, lambda: NGram.open(path, verify=True), "'arcs'")
    data[HEADER.size + 30] ^= 1
    path.write_bytes(data)
    refuses(ValueError, lambda: NGram.open(path, verify=False), "header")


def test_a_resident_model_is_the_same(model, path):
    resident, mapped = NGram.open(path, resident=True), NGram.open(path)
    for ours, theirs in zip(resident.compact.sections.values(), mapped.compact.sections.values()):
        assert np.array_equal(ours, theirs) and not ours.flags.writeable
    data = path.read_bytes()
    path.write_bytes(data[:-1])  # the file is read no more
    assert np.array_equal(resident.score([1, 2, 0]), model.score([1, 2, 0]))
    refuses(ValueError, lambda: NGram.open(path, resident=True), path.name, len(data), len(data) - 1)


def test_odd_metadata_do_no_harm(model, path):
    odd = {"ngrams": 7, "bos": "x", "eos": 10**6, "pruning": "no"}
    replace(model, metadata=odd).save(path)
    back = NGram.open(path)
    assert back.info()["ngrams"] == [6, 3, 1]
    assert back.to_tables().bos is None and back.to_tables().eos is None


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe.ngram")
    refuses(ValueError, lambda: NGram.open(tmp_path), tmp_path)
    refuses(ValueError, lambda: NGram.open(tmp_path / "pipe.ngram"), tmp_path / "pipe.ngram")


@pytest.mark.parametrize("seal", [False, True], ids=["as it is", "checksums mended"])
@pytest.mark.parametrize("verify", [None, False])
def test_damaged_files_are_errors_or_models(tmp_path, seal, verify):
    """Unverified files may be found damaged later, by an error of their use, but never by a crash."""
    NGram.from_tables(random_tables(5, 3), words=list("abcdefghi")).save(tmp_path / "whole.ngram")
    whole = (tmp_path / "whole.ngram").read_bytes()
    path, refused = tmp_path / "damaged.ngram", 0
    for seed in times(250):
        draw = random.Random(seed)
        data = damage(whole, draw)
        if draw.random() < 0.5:  # what follows the header is seldom reached otherwise
            data = (whole[:64] + data[64:])[: len(whole)].ljust(len(whole), b"\0")
        path.write_bytes(sealed(data) if seal else data)
        try:
            use(NGram.open(path, verify))
        except (ValueError, RuntimeError):
            refused += 1
    assert refused > len(times(250)) // 4
