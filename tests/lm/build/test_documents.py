"""Documents of text files: every form and packing, bad lines, damaged files."""

import gzip
import json
import os
import threading
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refused, refuses

from rescore.lm.build import documents as documents_module
from rescore.lm.build import inputs
from rescore.lm.build.documents import Faults, documents
from rescore.lm.build.inputs import ReadOptions, plan
from rescore.lm.model import compressed
from rescore.lm.model.vocabulary import Skipped

ANY_TOKENIZER = object()  # plan only asks whether there is one


PACK = {"": bytes, ".gz": gzip.compress, ".zst": partial(pa.compress, codec="zstd", asbytes=True)}


def as_lines(*texts: str, field: str = "text") -> bytes:
    return "".join(json.dumps({field: text, "more": 1}) + "\n" for text in texts).encode()


def read(path, skipped: Skipped | None = None, **options) -> list[str]:
    """The documents of all pieces of a file."""
    found = plan([path], vocab_size=50, tokenizer=ANY_TOKENIZER, options=ReadOptions(**options))
    return [text for piece in found for _, text in documents(piece, Faults(piece, skipped))]


@pytest.mark.parametrize("packing", PACK)
def test_forms(tmp_path, packing):
    def written(name: str, content: bytes):
        path = tmp_path / f"{name}{packing}"
        path.write_bytes(PACK[packing](content))
        return path

    lines = b"\xef\xbb\xbf" + as_lines("one", "zwei\nmal", "") + b"\n  \r\n\xef\xbb\xbf\n" + as_lines("é").rstrip()
    path = written("a.v1.jsonl", lines)
    assert read(path) == ["one", "zwei\nmal", "é"]
    with open(path, "ab") as file:  # as `cat a.gz b.gz` and parallel packers write them
        file.write(PACK[packing](b"\n" + as_lines("two")))
    assert read(path) == ["one", "zwei\nmal", "é", "two"]
    assert read(written("a.json", as_lines("one", field="body")), text_field="body") == ["one"]
    path = written("a.txt", b"w1 w2\n\nw3\r\n")
    assert read(path) == ["w1 w2", "w3"] and read(path, documents="file") == ["w1 w2\n\nw3\r\n"]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_parquet(tmp_path, kind):
    texts = [f"text {i % 7} é" for i in range(200)]
    table = pa.table({"id": range(200), "body": pa.array(texts).cast(kind)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=30)
    assert read(tmp_path / "a.parquet", text_field="body") == texts


def test_parquet_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PIECE_BYTES", 1500)
    texts = [f"{i} {'x' * (i % 97)}" for i in range(300)]
    options = {"row_group_size": 10, "compression": "none", "use_dictionary": False}
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", **options)
    found = plan([tmp_path / "a.parquet"], vocab_size=50, tokenizer=ANY_TOKENIZER)
    assert len(found) > 5 and read(tmp_path / "a.parquet") == texts
    assert [piece.begin for piece in found[1:]] == [piece.end for piece in found[:-1]]


def test_parquet_rows_that_are_no_text(tmp_path):
    values = pa.array([b"good", None, b"\xff", b""], pa.binary())
    column = pa.StringArray.from_buffers(4, values.buffers()[1], values.buffers()[2], values.buffers()[0])
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    skipped = Skipped()
    assert read(tmp_path / "a.parquet", skipped) == ["good"]
    assert skipped.examples == [
        f"{tmp_path / 'a.parquet'}, row 2: expected text in column 'text', got null",
        f"{tmp_path / 'a.parquet'}, row 3: expected UTF-8, got byte 0xff at 0",
    ]
    refuses(ValueError, lambda: read(tmp_path / "a.parquet"), "null", "a.parquet", "2", "'text'")


def test_parquet_refused(tmp_path):
    path = tmp_path / "a.parquet"
    for table, message in (
        ({"a": ["x"], "b": [1]}, ["'text'", "'a'", "'b'", "--text-field"]),
        ({"text": [1]}, ["int64", "'text'"]),
        ({"text": [["x"]]}, ["list", "'text'"]),
    ):
        pq.write_table(pa.table(table), path)
        refuses(ValueError, lambda: read(path), "a.parquet", *message)
    pq.write_table(pa.table({"text": [f"{i} {os.urandom(20).hex()}" for i in range(5000)]}), path, row_group_size=1000)
    whole = path.read_bytes()
    for content in (b"", whole[:-100], whole[:1000] + b"\xff" * 20000 + whole[21000:]):
        path.write_bytes(content)
        refuses(ValueError, lambda: read(path), "a.parquet")


BAD = [
    (b'{"text": 3}', ['"text"', "3}"], "no text"),
    (b'{"text": NaN}', ["object"], "no text"),
    (b'{"text": "b"', ["','"], "not JSON"),
    (b'{"a": ' * 50_000, [], "not JSON"),
    (b'{"a": ' + b"9" * 5000 + b"}", ["Exceeds"], "not JSON"),
    (b'{"text": "\xff"}', ["UTF-8", "0xff", "10"], "not UTF-8"),
    (b'{"text": "\xed\xa0\x80"}', ["UTF-8", "0xed", "10"], "not UTF-8"),
    (b'{"text": "\\ud800"}', ['"text"'], "half a surrogate pair"),
]


@pytest.mark.parametrize("bad, message, reason", BAD, ids=range(len(BAD)))
@pytest.mark.parametrize("packing", ["", ".gz"])
def test_bad_lines(tmp_path, packing, bad, message, reason):
    path = tmp_path / f"a.jsonl{packing}"
    path.write_bytes(PACK[packing](as_lines("one") + b"\n" + bad + b"\n" + as_lines("two", "three")))
    refuses(ValueError, lambda: read(path), f"a.jsonl{packing}", "3", *message)
    skipped = Skipped()
    assert read(path, skipped) == ["one", "two", "three"] and skipped.reasons == {reason: 1}
    assert len(skipped) == 1 and skipped.examples[0].startswith(f"{path}, line 3: ")


def test_many_bad_lines_and_lines_by_the_number_of_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "PIECE_BYTES", 50)
    (tmp_path / "a.jsonl").write_bytes(b"".join(b"bad\n" if i % 3 == 0 else as_lines(f"text {i}") for i in range(30)))
    skipped = Skipped()
    assert read(tmp_path / "a.jsonl", skipped) == [f"text {i}" for i in range(30) if i % 3]
    assert skipped.reasons == {"not JSON": 10}
    assert [example.split(": ")[0].rpartition(" ")[2] for example in skipped.examples] == ["1", "4", "7", "10", "13"]


def test_too_long(tmp_path, monkeypatch):
    for module in (compressed, documents_module):
        monkeypatch.setattr(module, "MAX_BYTES", 100)
    monkeypatch.setattr(compressed, "BLOCK", 16)
    content = as_lines("a") + as_lines("x" * 500) + as_lines("b") + as_lines("y" * 100)
    for packing in PACK:
        skipped = Skipped()
        (tmp_path / f"a.jsonl{packing}").write_bytes(PACK[packing](content))
        assert read(tmp_path / f"a.jsonl{packing}", skipped) == ["a", "b"]
        assert skipped.reasons == {"too long": 2} and skipped.examples[1].endswith("line 4: longer than 0 MiB")
    (tmp_path / "a.txt").write_bytes(b"x" * 101)
    with refused(ValueError, "a.txt", "0", "MiB", "--documents"):
        read(tmp_path / "a.txt", Skipped(), documents="file")
    pq.write_table(pa.table({"text": ["a", "x" * 101]}), tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet", Skipped()) == ["a"]


def test_whole_files_that_are_no_text(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\xff")
    refuses(ValueError, lambda: read(tmp_path / "a.txt", documents="file"), "a.txt", "UTF-8", "0xff", "1")
    skipped = Skipped()
    assert read(tmp_path / "a.txt", skipped, documents="file") == [] and skipped.reasons == {"not UTF-8": 1}


@pytest.mark.parametrize("packing, name", [(".gz", "gzip"), (".zst", "zstd")])
def test_damaged(tmp_path, packing, name):
    """Damage is an error, skipping or not: nobody knows what is lost."""
    rng = np.random.default_rng(0)
    whole = PACK[packing](as_lines(*(rng.bytes(200).hex() for _ in range(5000))))
    for content in (b"", whole[:-12], whole + b"junk"):
        (tmp_path / f"a.jsonl{packing}").write_bytes(content)
        refuses(ValueError, lambda: read(tmp_path / f"a.jsonl{packing}", Skipped()), f"a.jsonl{packing}", name)
    (tmp_path / f"b.jsonl{packing}").write_bytes(whole[: len(whole) // 2])
    refuses(ValueError, lambda: read(tmp_path / f"b.jsonl{packing}", Skipped()), "after line")
    (tmp_path / f"a.txt{packing}").write_bytes(whole[:-12])
    with refused(ValueError, f"a.txt{packing}", name):
        read(tmp_path / f"a.txt{packing}", Skipped(), documents="file")


@settings(max_examples=150)
@given(
    st.lists(st.sampled_from(["", "a", "bb", "c" * 9, "é", "\r"]), max_size=12),
    st.booleans(),
    st.integers(1, 30),
    st.integers(1, 8),
)
def test_lines_in_pieces(tmp_path_factory, texts, ended, step, block):
    """Each line comes once, in order, wherever pieces end."""
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes(("\n".join(texts) + "\n" * ended).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "PIECE_BYTES", step)
        patch.setattr(compressed, "BLOCK", block)
        assert read(path) == [text for text in texts if text.strip("\r")]


def test_pipes(tmp_path):
    os.mkfifo(tmp_path / "a.jsonl")
    writer = threading.Thread(target=lambda: (tmp_path / "a.jsonl").write_bytes(as_lines("one", "two")))
    writer.start()
    assert read(tmp_path / "a.jsonl") == ["one", "two"]
    writer.join()
    os.mkfifo(tmp_path / "a.parquet")
    refuses(ValueError, lambda: read(tmp_path / "a.parquet"), "a.parquet")
