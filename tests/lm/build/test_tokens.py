"""Files of tokens, cut into documents as a plain loop cuts them; plans: the pieces of inputs, their identities."""

import dataclasses
import gzip
import itertools
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs
from support import cli
from support.refusals import refused, refuses

from rescore.lm.build import inputs, tokens
from rescore.lm.build.inputs import Piece, ReadOptions, files_of, form_of, plan
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.build.vocabulary import Skipped
from rescore.lm.model.tokenizer import TextTokenizer

V, EOT = 50, 0


def read(path, vocab_size: int = V, end_of_text: int | None = EOT, **options) -> list[np.ndarray]:
    """The arrays of all pieces of a file."""
    how = {"vocab_size": vocab_size, "end_of_text": end_of_text}
    found = plan([path], vocab_size=vocab_size, options=ReadOptions(**options))
    return [documents.tokens for piece in found for documents in numbered_tokens(piece, **how)]


def flat(arrays: list[np.ndarray]) -> list[int]:
    return [int(token) for array in arrays for token in array]


def ended(tokens: list[int]) -> list[int]:
    """The oracle: documents between ends of text, the empty ones left out, each followed by one."""
    documents = [list(group) for inside, group in itertools.groupby(tokens, lambda token: token != EOT) if inside]
    return [token for document in documents for token in (*document, EOT)]


STREAM = [0, 0, 1, 2, 0, 0, 0, 3, 0, 0]


@pytest.mark.parametrize("dtype", ["u1", "i1", "<u2", ">u2", "i4", ">i4", "u4", "i8", "u8"])
def test_npy(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.array(STREAM, dtype))
    arrays = read(tmp_path / "a.npy")
    assert flat(arrays) == ended(STREAM) and all(array.dtype == np.uint16 for array in arrays)
    assert flat(read(tmp_path / "a.npy", end_of_text=None)) == STREAM


@pytest.mark.parametrize(
    "dtype, vocab_size, stored",
    [(None, V, "<u2"), (None, 70_000, "<u4"), ("uint16", 1 << 24, "<u2"), ("uint32", V, "<u4"), ("int32", V, "<i4")],
)
def test_bin(tmp_path, dtype, vocab_size, stored):
    np.array(STREAM, stored).tofile(tmp_path / "a.bin")
    assert flat(read(tmp_path / "a.bin", vocab_size, dtype=dtype)) == ended(STREAM)


IDS = np.random.default_rng(0).zipf(1.3, 3000) % 2000


def piped(path, **options) -> list[int]:
    """The ids of a named pipe that gives the bytes of a file."""
    os.mkfifo(path.with_name("pipe.bin"))
    writer = threading.Thread(target=lambda: path.with_name("pipe.bin").write_bytes(path.read_bytes()))
    writer.start()
    found = flat(read(path.with_name("pipe.bin"), **options))
    writer.join()
    return found


@pytest.mark.parametrize("ids", [IDS, IDS * 0 + 7, IDS % 2, (IDS % 50 == 3) * 5], ids=["zipf", "one", "two", "rare"])
@pytest.mark.parametrize(("vocab_size", "stored"), [(2000, "<u2"), (2000, "<u4"), (2000, "<i4"), (2000, "<i8")])
def test_the_width_of_ids_is_told_by_their_zeros(tmp_path, ids, vocab_size, stored):
    ids.astype(stored).tofile(tmp_path / "a.bin")
    assert flat(read(tmp_path / "a.bin", vocab_size, None)) == ids.tolist()
    assert piped(tmp_path / "a.bin", vocab_size=vocab_size, end_of_text=None) == ids.tolist()


@pytest.mark.parametrize("stored", ["<u4", "<i8"])
def test_the_width_of_ids_of_large_vocabularies(tmp_path, stored):
    ids = IDS * 40
    ids.astype(stored).tofile(tmp_path / "a.bin")
    assert flat(read(tmp_path / "a.bin", 80_000, None)) == ids.tolist()


@pytest.mark.parametrize("stored", [">u4", ">i8"])
def test_other_byte_orders_are_refused(tmp_path, stored):
    IDS.astype(stored).tofile(tmp_path / "a.bin")
    refuses(ValueError, lambda: read(tmp_path / "a.bin", 1 << 16), "a.bin", "big-endian", "--dtype")


def test_what_is_no_file_of_ids_is_refused_unless_its_dtype_is_given(tmp_path):
    np.save(tmp_path / "a.npy", IDS.astype(np.uint16))
    ids = IDS.astype(np.uint16).tobytes()
    for content, name in ((gzip.compress(ids), "gzip"), ((tmp_path / "a.npy").read_bytes(), "numpy")):
        (tmp_path / "a.bin").write_bytes(content + bytes(len(content) % 2))
        refuses(ValueError, lambda: read(tmp_path / "a.bin", 1 << 16), "a.bin", name, "--dtype")
        found = read(tmp_path / "a.bin", 1 << 16, None, dtype="uint16")
        assert flat(found) == np.fromfile(tmp_path / "a.bin", "<u2").tolist()


def test_a_given_dtype_counts(tmp_path):
    """Documents of one token, each followed by the end of text, 0, look like wider ids."""
    stream = [number for token in range(1, 40) for number in (token, 0)]
    np.array(stream, "<u2").tofile(tmp_path / "a.bin")
    assert flat(read(tmp_path / "a.bin", dtype="uint16")) == stream


def test_a_second_array_in_an_npy_file_is_refused(tmp_path):
    with open(tmp_path / "a.npy", "wb") as file:
        np.save(file, IDS)
        np.save(file, IDS)
    refuses(ValueError, lambda: read(tmp_path / "a.npy", 2000), "a.npy", IDS.nbytes + 128)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 20), st.integers(1, 12))
@example([1, 2, 3, 4] * 1000, 4000, 10)
def test_documents_in_pieces(tmp_path_factory, stream, step, chunk):
    """Every document comes once and whole, wherever pieces and chunks end, one longer than many chunks among them."""
    path = tmp_path_factory.mktemp("tokens") / "a.npy"
    np.save(path, np.array(stream, np.uint16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "PIECE_TOKENS", step)
        patch.setattr(tokens, "CHUNK", chunk)
        arrays = read(path)
        assert flat(arrays) == ended(stream)
        assert all(len(array) > 1 and array[0] != EOT and array[-1] == EOT for array in arrays)
        assert flat(read(path, end_of_text=None)) == stream


def test_arrays_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "CHUNK", 7)
    monkeypatch.setattr(tokens, "MAX_TOKENS", 1000)
    path = tmp_path / "a.npy"
    for array, named in (
        (np.array([1, 50]), ["1", "0..49", "50"]),
        (np.array([1, 2, -1]), ["2", "0..49", "-1"]),
        (np.array([0] * 30 + [1 << 40]), ["30", "0..49", 1 << 40]),
        (np.tile(np.arange(1, 41), 100), ["1000"]),  # one document
        (np.zeros((2, 2), int), ["int64", "2"]),
        (np.zeros(2), ["float64", "2"]),
    ):
        np.save(path, array)
        refuses(ValueError, lambda: read(path), path, *named)
    np.save(path, np.arange(100))
    whole = path.read_bytes()
    np.save(path, np.array([{}]), allow_pickle=True)
    for content in (path.read_bytes(), b"", b"junk" * 50, whole[:-50], whole[:50]):
        path.write_bytes(content)
        refuses(ValueError, lambda: read(path), path)
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    (tmp_path / "a.npz").rename(path)
    refuses(ValueError, lambda: read(path), path, "archive")
    (tmp_path / "a.bin").write_bytes(b"abc")
    refuses(ValueError, lambda: read(tmp_path / "a.bin"), "a.bin", "uint16", "2", "3", "--dtype")


def test_ids_from_a_pipe(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "CHUNK", 3)
    os.mkfifo(tmp_path / "a.bin")

    def read_all(content: bytes) -> list[int]:
        writer = threading.Thread(target=(tmp_path / "a.bin").write_bytes, args=(content,))
        writer.start()
        try:
            return flat(read(tmp_path / "a.bin"))
        finally:
            writer.join()

    assert read_all(np.array([1, 2, 0, 3, 4, 5, 6], "<u2").tobytes()) == [1, 2, 0, 3, 4, 5, 6, 0]
    refuses(ValueError, lambda: read_all(b"abc"), "a.bin", "uint16", "2", "3")


def test_dumps(tmp_path):
    made = cli.make_dump(tmp_path / "dump")
    texts = [[*one["prompt"], *one["tokens"]] for one in made]
    assert flat(read(tmp_path / "dump")) == [token for text in texts for token in ended(text)]
    found = plan([tmp_path / "dump"], vocab_size=V)
    assert all(piece.path.endswith(".safetensors") and piece.size for piece in found) and len(found) == 2
    other = TextTokenizer.open(cli.make_tokenizer(tmp_path / "t.json"))
    own = dataclasses.replace(other, sha256="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert plan([tmp_path / "dump"], vocab_size=V, tokenizer=own)
    with refused(ValueError, "dump", "e3b0", "sha256", other.sha256):
        plan([tmp_path / "dump"], vocab_size=V, tokenizer=other)
    refuses(ValueError, lambda: read(tmp_path / "dump", vocab_size=1), "0..0")
    (shard,) = (tmp_path / "dump").glob("first*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    refuses(ValueError, lambda: read(tmp_path / "dump"), "checksum")


@pytest.mark.parametrize("ids, noted", [([1, 2, 3], 1), ([1, 0, 2], 0), ([], 0)])
@pytest.mark.parametrize("form", ["npy", "bin"])
def test_a_file_without_any_end_of_text_is_noted(tmp_path, ids, noted, form):
    path, skipped = tmp_path / f"a.{form}", Skipped()
    np.save(path, np.array(ids, "<u2")) if form == "npy" else np.array(ids, "<u2").tofile(path)
    for piece in plan([path], vocab_size=9):
        list(numbered_tokens(piece, vocab_size=9, end_of_text=0, skipped=skipped))
    assert len(skipped.notes) == noted and all(str(path) in note for note in skipped.notes)
    assert Skipped.from_json(skipped.to_json(), skipped.to_json()).notes == 2 * skipped.notes


def test_the_plan_of_several_files(tmp_path, monkeypatch):
    """Pieces of 40 tokens or of 10 bytes cover each file; one of no known length is one piece."""
    monkeypatch.setattr(inputs, "PIECE_TOKENS", 40)
    monkeypatch.setattr(inputs, "PIECE_BYTES", 10)
    np.save(tmp_path / "a.npy", np.zeros(100, np.uint16))
    np.zeros(50, np.uint32).tofile(tmp_path / "b.bin")
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(b"x" * 25))
    (tmp_path / "e.txt").write_bytes(b"x" * 25)
    (tmp_path / "f.jsonl").touch()
    found = plan([tmp_path / "*"], vocab_size=100_000, tokenizer=object())
    ends = {"a.npy": [40, 80, 100], "b.bin": [40, 50], "d.json.gz": [None], "e.txt": [10, 20, 25], "f.jsonl": [0]}
    assert [(Path(piece.path).name, piece.begin, piece.end) for piece in found] == [
        (name, begin, end) for name, own in ends.items() for begin, end in zip([0, *own], own)
    ]
    assert plan([tmp_path / "*"], vocab_size=100_000, tokenizer=object()) == found
    assert all(Piece(**json.loads(json.dumps(piece.to_json()))) == piece for piece in found)
    assert plan([tmp_path / "b.bin"], vocab_size=100_000, options=ReadOptions(dtype="uint16")) != found[3:5]


def test_changed_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(5))
    (piece,) = plan([tmp_path / "a.npy"], vocab_size=9)
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    assert plan([tmp_path / "a.npy"], vocab_size=9) != [piece]
    refuses(ValueError, lambda: next(numbered_tokens(piece, vocab_size=9, end_of_text=0)), "a.npy")


def test_names_and_patterns(tmp_path):
    for name in ("b.jsonl", "a.jsonl", "a.txt", "in/c.jsonl", "in/deep/d.jsonl", "odd[1].jsonl", "dump/dump.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def found(*patterns: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in files_of([tmp_path / pattern for pattern in patterns])]

    assert found("b.jsonl", "a.*") == ["b.jsonl", "a.jsonl", "a.txt"]
    assert found("?.jsonl") == ["a.jsonl", "b.jsonl"]
    assert found("**/[cd].jsonl") == ["in/c.jsonl", "in/deep/d.jsonl"]
    assert found("odd[1].jsonl") == ["odd[1].jsonl"]  # a file of that very name
    assert found("dum*", "i*/*.jsonl") == ["dump", "in/c.jsonl"]  # folders are left out, but for dumps
    assert files_of(["-"]) == [Path("-")]
    for name in ("none.jsonl", "*.zst", "i*"):
        with refused(FileNotFoundError, name):
            found(name)
    refuses(ValueError, lambda: plan([tmp_path / "a.jsonl"], vocab_size=9), "a.jsonl", "--tokenizer", "tokenizer.json")
    refuses(ValueError, lambda: found("in"), "in/*.json.gz'")
    refuses(ValueError, lambda: found("*.jsonl", "in/../a.jsonl"), "a.jsonl")
    os.symlink(tmp_path / "none", tmp_path / "dangling.jsonl")
    assert found("dangling.jsonl")  # opening it says what is wrong


FORMS = {"a.jsonl": "jsonl", "c4-train.00000-of-01024.json.gz": "jsonl", "a.b.json.zst": "jsonl", "-": "jsonl"}
FORMS |= {"a.txt": "lines", "a.txt.gz": "lines", "a.parquet": "parquet", "a.npy": "npy", "a.bin": "bin"}


@pytest.mark.parametrize("name, form", FORMS.items())
def test_forms(name, form):
    assert form_of(Path(name), ReadOptions()) == form
    whole = form_of(Path(name), ReadOptions(documents="file", stdin="txt"))
    assert whole == ("txt" if form == "lines" or name == "-" else form)


@pytest.mark.parametrize("name", ["a", "a.csv", "a.gz", "a.npy.gz", ".jsonl"])
def test_forms_refused(name):
    refuses(ValueError, lambda: form_of(Path(name), ReadOptions()), name, "bz2")


def test_options_are_those_of_the_command_line():
    from rescore.decode.cli import lm_groups

    assert lm_groups.ID_DTYPES == inputs.DTYPES and lm_groups.STDIN_FORMATS == inputs.STDIN_FORMATS
    assert lm_groups.DOCUMENTS == inputs.DOCUMENTS
    wrong = {"text_field": "", "documents": "word", "dtype": "int64", "stdin": "npy"}
    assert {field.name for field in structs.fields(ReadOptions)} == wrong.keys()
    for option, value in wrong.items():
        with refused(ValueError, option, value):
            ReadOptions(**{option: value})
