"""Texts: documents of files in every form and packing, bad lines, damaged files; their tokens; vocabularies."""

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
from support import cli
from support.refusals import assert_named, refused, refuses
from tokenizers import Tokenizer, models

from rescore.lm.build import documents as documents_module
from rescore.lm.build import inputs, sources, tokens, vocabulary
from rescore.lm.build.documents import Faults, documents
from rescore.lm.build.inputs import ReadOptions, plan
from rescore.lm.build.sources import number_words
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.build.vocabulary import Skipped, Vocabulary, split
from rescore.lm.build.work import WorkFolder
from rescore.lm.model import compressed
from rescore.lm.model.tokenizer import TextTokenizer

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
def test_parquet(tmp_path, monkeypatch, kind):
    """Whole, and in pieces."""
    texts, path = [f"{i} {'x' * (i % 97)} é" for i in range(300)], tmp_path / "a.parquet"
    table = pa.table({"id": range(300), "body": pa.array(texts).cast(kind)})
    pq.write_table(table, path, row_group_size=10, compression="none", use_dictionary=False)
    assert read(path, text_field="body") == texts
    monkeypatch.setattr(inputs, "PIECE_BYTES", 1500)
    found = plan([path], vocab_size=50, tokenizer=ANY_TOKENIZER, options=ReadOptions(text_field="body"))
    assert len(found) > 5 and read(path, text_field="body") == texts
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


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings(tmp_path, monkeypatch, encoding):
    """Text of other encodings, which is not divided."""
    monkeypatch.setattr(inputs, "PIECE_BYTES", 50)
    texts = [f"the cat {i} \u00e9" for i in range(40)]
    (tmp_path / "a.txt").write_bytes("\n".join(texts).encode(encoding))
    (tmp_path / "a.jsonl").write_bytes(as_lines(*texts).decode().encode(encoding))
    (tmp_path / "b.jsonl").write_bytes(gzip.compress(as_lines(*texts)))
    (tmp_path / "c.jsonl.gz").write_bytes(as_lines(*texts))
    for name in ("a.txt", "a.jsonl", "b.jsonl", "c.jsonl.gz"):
        assert read(tmp_path / name) == texts


def test_lines_of_another_encoding_are_skipped(tmp_path):
    """PowerShell's >> adds UTF-16 to any file; a text may hold some NUL characters."""
    (tmp_path / "a.txt").write_bytes(b"one two\na\0b\n" + "three four\n".encode("utf-16-le"))
    skipped = Skipped()
    assert read(tmp_path / "a.txt", skipped) == ["one two", "a\0b"] and skipped.reasons["not UTF-8"] >= 1
    refuses(ValueError, lambda: read(tmp_path / "a.txt"), "a.txt, line 3", "UTF-16")


def test_checksums_of_parquet(tmp_path):
    """A flipped bit of a page, which pyarrow reads unless it is asked to check."""
    path, texts = tmp_path / "a.parquet", ["the cat sat"] * 300
    pq.write_table(pa.table({"text": texts}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    assert read(path) == texts
    path.write_bytes(path.read_bytes().replace(b"\0\0\0the cat", b"\0\0\0the cut", 1))
    assert "the cut sat" in pq.read_table(path)["text"].to_pylist()
    refuses(ValueError, lambda: read(path), "a.parquet")


@settings(max_examples=100)
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


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> TextTokenizer:
    return TextTokenizer.open(cli.make_tokenizer(tmp_path_factory.mktemp("tokenize") / "tokenizer.json"))


def tokens_of(path, tokenizer, **options) -> list[np.ndarray]:
    options = {"vocab_size": tokenizer.vocab_size, "end_of_text": 0, "tokenizer": tokenizer, **options}
    pieces = plan([path], vocab_size=options["vocab_size"], tokenizer=tokenizer)
    return [documents.tokens for piece in pieces for documents in numbered_tokens(piece, **options)]


@pytest.fixture
def lines(tmp_path):
    """A file of texts."""

    def write(*texts):
        path = tmp_path / "a.jsonl"
        path.write_bytes(as_lines(*texts))
        return path

    return write


@pytest.mark.parametrize("batch", [1, 50, 1 << 20])
def test_documents_keep_their_order(lines, tokenizer, monkeypatch, batch):
    monkeypatch.setattr(tokens, "BATCH", batch)
    path = lines(*(f"w{i % 49 + 1} w2" if i % 5 else " " * (i % 2) for i in range(600)))
    arrays = tokens_of(path, tokenizer)
    assert np.concatenate(arrays).tolist() == [token for i in range(600) if i % 5 for token in (i % 49 + 1, 2, 0)]
    assert all(array.dtype == np.uint16 and array[-1] == 0 for array in arrays)


def test_ids_beyond_16_bits(lines, tmp_path):
    tokenizer = TextTokenizer.open(cli.make_tokenizer(tmp_path / "t.json", size=65_538))
    (array,) = tokens_of(lines("w65535 w65536 w65537", "w1"), tokenizer)
    assert array.dtype == np.uint32 and array.tolist() == [65_535, 65_536, 65_537, 0, 1, 0]


def test_texts_that_hold_the_end_of_text(lines, tokenizer):
    """This tokenizer has no other ids for the words <|endoftext|>; where others have, they are used
    (test_tokenizer.py).
    """
    path, skipped = lines("w1", "w2 <|endoftext|> w3", "w4"), Skipped()
    (array,) = tokens_of(path, tokenizer, skipped=skipped)
    assert array.tolist() == [1, 0, 4, 0] and skipped.reasons == {"holds the end of text": 1}
    refuses(ValueError, lambda: tokens_of(path, tokenizer), "a.jsonl", "2", "0")
    (array,) = tokens_of(path, tokenizer, end_of_text=9)
    assert array.tolist() == [1, 9, 2, 0, 3, 9, 4, 9]


def test_texts_without_tokens(lines, tmp_path, tokenizer, monkeypatch):
    path = lines("w1", "", "w2")
    refuses(ValueError, lambda: tokens_of(path, tokenizer, vocab_size=49), "a.jsonl", "50", "49")
    (piece,) = plan([path], vocab_size=50, tokenizer=tokenizer)
    refuses(ValueError, lambda: list(numbered_tokens(piece, vocab_size=50, end_of_text=0)), "a.jsonl", "--tokenizer")
    failing = TextTokenizer.from_bytes(Tokenizer(models.WordLevel({"</s>": 0}, unk_token="none")).to_str().encode())
    refuses(ValueError, lambda: tokens_of(path, failing, skipped=Skipped()), "a.jsonl", "1", "2")
    monkeypatch.setattr(tokens, "BATCH", 1)  # what was encoded before a bad line is under way when it is met
    path.write_text('{"text": "w1"}\n' * 20 + "bad\n")
    refuses(ValueError, lambda: tokens_of(path, tokenizer), "bad", "a.jsonl", "21")


def numbered(tmp_path, *names, keep=False, **options):
    """Words and ids of files."""
    work = WorkFolder(tmp_path / "work")
    try:
        pieces = plan([tmp_path / name for name in names], vocab_size=1 << 24, tokenizer=Vocabulary.empty())
        found = number_words(work, pieces, **options)
        return found.vocabulary, np.fromfile(found.piece.path, np.uint32).tolist(), work.skipped()
    finally:
        work.close() if keep else work.remove()


def test_words_are_cut_at_ascii_white_space():
    assert split(" a\tb\x0b c\0d\n") == [b"a", b"b", b"c", b"d"]
    assert split("a\u00a0b \u3000") == ["a\u00a0b".encode(), "\u3000".encode()]  # words to KenLM too


def test_words_are_numbered_as_they_come(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("the cat\n\n  \nthe <unk> dog\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "dog\nand é"}) + "\n")
    for batch in (1, 1 << 20):
        monkeypatch.setattr(sources, "BATCH", batch)
        found, ids, skipped = numbered(tmp_path, "a.txt", "b.jsonl")
        assert found.spelled == ("<unk>", "</s>", "the", "cat", "dog", "and", "é")
        assert ids == [2, 3, 1, 2, 0, 4, 1, 4, 5, 6, 1]
        assert skipped == [{"documents": 0, "reasons": {}, "examples": [], "notes": []}]


def test_lines_that_hold_boundaries_are_skipped(tmp_path):
    (tmp_path / "a.txt").write_text("a b\nc </s> d\n<s> e\na<s>\n")
    found, ids, (skipped,) = numbered(tmp_path, "a.txt")
    assert found.spelled == ("<unk>", "</s>", "a", "b", "a<s>") and ids == [2, 3, 1, 4, 1]
    assert skipped["reasons"] == {"holds the end of text": 2}
    assert_named(skipped["examples"][0], [tmp_path / "a.txt", "2", "</s>"])
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt", strict=True), "a.txt", "2", "</s>")


def test_what_was_numbered_is_not_read_again(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a b\n")
    words, ids, _ = numbered(tmp_path, "a.txt", keep=True)
    monkeypatch.setattr(sources, "documents", None)
    again, same, _ = numbered(tmp_path, "a.txt", keep=True)
    assert (again.spelled, same) == (words.spelled, ids)
    (tmp_path / "a.txt").write_text("a b c\n")
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt"), "work")


def test_too_many_words(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_VOCABULARY", 4)
    (tmp_path / "a.txt").write_text("a b\n")
    assert numbered(tmp_path, "a.txt")[0].vocab_size == 4
    (tmp_path / "a.txt").write_text("a b c\n")
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt"), "words", "4", "--tokenizer")
