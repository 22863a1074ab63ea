"""Files of tokens: flat arrays, windows, dumps; documents cut as a plain loop cuts them."""

import itertools
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import cli
from support.refusals import refuses

from rescore.lm.build import inputs, tokens
from rescore.lm.build.inputs import ReadOptions, plan
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.model.vocabulary import Skipped

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


@settings(max_examples=100)
@given(st.lists(st.integers(0, 4), max_size=60), st.integers(1, 20), st.integers(1, 12))
def test_documents_in_pieces(tmp_path_factory, stream, step, chunk):
    """Every document comes once and whole, wherever pieces and chunks end."""
    path = tmp_path_factory.mktemp("tokens") / "a.npy"
    np.save(path, np.array(stream, np.uint16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "PIECE_TOKENS", step)
        patch.setattr(tokens, "CHUNK", chunk)
        arrays = read(path)
        assert flat(arrays) == ended(stream)
        assert all(len(array) > 1 and array[0] != EOT and array[-1] == EOT for array in arrays)
        assert flat(read(path, end_of_text=None)) == stream


def test_a_document_longer_than_many_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "CHUNK", 10)
    np.save(tmp_path / "a.npy", np.tile(np.arange(1, 41), 100))
    (array,) = read(tmp_path / "a.npy")
    assert len(array) == 4001
    monkeypatch.setattr(tokens, "MAX_TOKENS", 1000)
    refuses(ValueError, lambda: read(tmp_path / "a.npy"), "a.npy", "1000")


@pytest.mark.parametrize("array, at, got", [([1, 50], 1, 50), ([1, 2, -1], 2, -1), ([0] * 30 + [1 << 40], 30, 1 << 40)])
def test_ids_outside_the_vocabulary(tmp_path, monkeypatch, array, at, got):
    monkeypatch.setattr(tokens, "CHUNK", 7)
    np.save(tmp_path / "a.npy", np.array(array))
    refuses(ValueError, lambda: read(tmp_path / "a.npy"), "a.npy", at, "0..49", got)


def test_arrays_refused(tmp_path):
    path = tmp_path / "a.npy"
    for array, got in ((np.zeros((2, 2), int), ["int64", "2"]), (np.zeros(2), ["float64", "2"])):
        np.save(path, array)
        refuses(ValueError, lambda: read(path), path, *got)
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
    refuses(ValueError, lambda: read(tmp_path / "dump", vocab_size=1), "0..0")
    (shard,) = (tmp_path / "dump").glob("first*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1] + b"\x7f")
    refuses(ValueError, lambda: read(tmp_path / "dump"), "checksum")


@pytest.mark.parametrize("ids, noted", [([1, 2, 3], 1), ([1, 0, 2], 0), ([], 0)])
@pytest.mark.parametrize("form", ["npy", "bin"])
def test_a_file_without_any_end_of_text_is_noted(tmp_path, ids, noted, form):
    path, skipped, array = tmp_path / f"a.{form}", Skipped(), np.array(ids, "<u2")
    if form == "npy":
        np.save(path, array)
    else:
        array.tofile(path)
    for piece in plan([path], vocab_size=9):
        list(numbered_tokens(piece, vocab_size=9, end_of_text=0, skipped=skipped))
    assert len(skipped.notes) == noted and all(str(path) in note for note in skipped.notes)
    assert Skipped.from_json(skipped.to_json(), skipped.to_json()).notes == 2 * skipped.notes
