"""Token sequences from text and token files, and what is refused."""

import gzip
import hashlib
import json

import cli
import numpy as np
import pytest

from rescore.lm.text import TextTokenizer, documents, sequences

pytest.importorskip("tokenizers")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> TextTokenizer:
    return TextTokenizer.open(cli.make_tokenizer(tmp_path_factory.mktemp("text") / "tokenizer.json"))


def lines(*texts: str) -> str:
    return "".join(json.dumps({"text": text, "more": 1}) + "\n" for text in texts)


def test_tokenizer(tmp_path):
    path = cli.make_tokenizer(tmp_path / "t.json", size=7)
    tokenizer = TextTokenizer.open(path)
    assert (tokenizer.vocab_size, tokenizer.eot) == (7, 0)
    assert tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert tokenizer.words() == ("<|endoftext|>", "w1", "w2", "w3", "w4", "w5", "w6")
    assert tokenizer.words(9)[6:] == ("w6", "", "")
    assert [ids.tolist() for ids in tokenizer.encode(["w3 w1", "", "<|endoftext|> w2"])] == [[3, 1], [], [0, 2]]


def test_vocabularies_with_holes(tmp_path):
    """V is the greatest id + 1, not the number of tokens."""
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 9}, unk_token="a"))
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "t.json"))
    assert TextTokenizer.open(tmp_path / "t.json").vocab_size == 10


def test_tokenizers_refused(tmp_path):
    path = cli.make_tokenizer(tmp_path / "t.json")
    with pytest.raises(ValueError, match="t.json: expected an end-of-text token named <nope>; name yours with --end-of-text"):
        TextTokenizer.open(path, "<nope>")
    assert TextTokenizer.open(path, "w4").eot == 4
    for content in (b"", b"{}", b"\xff\x00junk", b"[" * 100_000, path.read_bytes()[:-30]):
        (tmp_path / "bad.json").write_bytes(content)
        with pytest.raises(ValueError, match="bad.json: expected a Hugging Face tokenizer.json, got"):
            TextTokenizer.open(tmp_path / "bad.json")
    with pytest.raises(FileNotFoundError):
        TextTokenizer.open(tmp_path / "none.json")


@pytest.mark.parametrize("packed", [False, True])
def test_documents(tmp_path, packed):
    write = (lambda path, text: path.write_bytes(gzip.compress(text.encode()))) if packed else (lambda path, text: path.write_text(text, encoding="utf-8"))
    suffix = ".gz" if packed else ""
    path = tmp_path / f"a.v1.jsonl{suffix}"
    write(path, "\ufeff" + lines("one", "zwei\nmal", "") + "\n  \n" + lines("é"))
    assert list(documents(path)) == ["one", "zwei\nmal", "", "é"]
    path = tmp_path / f"a.txt{suffix}"
    write(path, "w1 w2\n\nw3\n")
    assert list(documents(path)) == ["w1 w2\n\nw3\n"]


@pytest.mark.parametrize(
    "content, message",
    [
        (b'{"text": 3}\n', 'line 1: expected an object with a string "text", got {"text": 3}'),
        (b'{"text": "a"}\n[1]\n', 'line 2: expected an object with a string "text", got .1.'),
        (b'{"text": "a"}\n\n{"text": "b"\n', "line 3: Expecting"),
        (b'{"text": "a"}\n{"text": "\xff"}\n', "line 2: expected UTF-8, got byte 0xff at 10"),
        (b'{"text": "\\ud800"}\n', "line 1: .*half a surrogate pair"),
        (b'{"a": ' * 50_000, "line 1: (nested too deeply|Expecting)"),
        (b'{"text": NaN}\n', "line 1: expected an object"),
    ],
)
def test_lines_refused(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match=f"a.jsonl, .*{message}|a.jsonl, {message}"):
        list(documents(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=f"a.jsonl.gz, .*{message}|a.jsonl.gz, {message}"):
        list(documents(tmp_path / "a.jsonl.gz"))


def test_files_refused(tmp_path, tokenizer):
    for name in ("a.json", "a", "a.csv", "a.gz", "a.npy.gz"):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=f"{name}: expected a name that ends in .jsonl, .txt .also .gz. or .npy"):
            list(documents(tmp_path / name))
    for content in (b"no gzip", gzip.compress(lines("a" * 1000).encode())[:-12], gzip.compress(b"\xff")):
        (tmp_path / "a.txt.gz").write_bytes(content)
        with pytest.raises(ValueError, match="a.txt.gz: (the gzip data are damaged after line 0|expected UTF-8, got byte 0xff at 0)"):
            list(documents(tmp_path / "a.txt.gz"))
    with pytest.raises(ValueError, match="a.txt.gz: expected .*, of which text needs a tokenizer; give --tokenizer"):
        list(sequences(tmp_path / "a.txt.gz", None))
    with pytest.raises(IsADirectoryError):
        (tmp_path / "d.txt").mkdir()
        list(sequences(tmp_path / "d.txt", tokenizer))


def test_many_documents_keep_their_order(tmp_path, tokenizer):
    texts = [f"w{i % 49 + 1} w2" for i in range(600)]
    (tmp_path / "a.jsonl").write_text(lines(*texts))
    assert [ids.tolist() for ids in sequences(tmp_path / "a.jsonl", tokenizer)] == [[i % 49 + 1, 2] for i in range(600)]


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_token_arrays(tmp_path, dtype):
    np.save(tmp_path / "a.npy", np.array([3, 0, 1], dtype))
    (found,) = sequences(tmp_path / "a.npy", None)
    assert found.dtype == dtype and found.tolist() == [3, 0, 1]


def test_token_arrays_refused(tmp_path):
    for array, got in ((np.zeros((2, 2), int), "int64 .2, 2."), (np.zeros(2), "float64 .2."), (np.array("x"), "<U1")):
        np.save(tmp_path / "a.npy", array)
        with pytest.raises(ValueError, match=f"a.npy: expected a flat array of integers, got {got}"):
            list(sequences(tmp_path / "a.npy", None))
    np.save(tmp_path / "a.npy", np.array([{}]), allow_pickle=True)
    whole = b""
    np.save(tmp_path / "b.npy", np.arange(100))
    whole = (tmp_path / "b.npy").read_bytes()
    for content in ((tmp_path / "a.npy").read_bytes(), b"", b"junk" * 50, whole[:-50], whole[:50]):
        (tmp_path / "a.npy").write_bytes(content)
        with pytest.raises(ValueError, match="a.npy: expected a .npy file of token ids, got"):
            list(sequences(tmp_path / "a.npy", None))
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="a.npy: expected a flat array of integers, got an archive"):
        list(sequences(tmp_path / "a.npy", None))
