"""Tokenizers: what they say about themselves, what they make of text, which are refused."""

import hashlib
import json

import numpy as np
import pytest
import tokenizers
from support import cli
from support.refusals import refused, refuses

from rescore.lm.model.tokenizer import TextTokenizer


def test_tokenizer(tmp_path):
    path = cli.make_tokenizer(tmp_path / "t.json", size=7)
    tokenizer = TextTokenizer.open(path)
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (7, 0)
    assert tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert tokenizer.words() == ("<|endoftext|>", "w1", "w2", "w3", "w4", "w5", "w6")
    assert tokenizer.words(9)[6:] == ("w6", "", "")
    assert [ids.tolist() for ids in tokenizer.encode(["w3 w1", ""])] == [[3, 1], []]


def test_vocabularies_with_holes(tmp_path):
    """V is the greatest id + 1, not the number of tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 9}, unk_token="a"))
    tokenizer.add_special_tokens(["</s>"])
    tokenizer.save(str(tmp_path / "t.json"))
    assert TextTokenizer.open(tmp_path / "t.json").vocab_size == 10


def byte_level(path, **changes):
    """A byte-level BPE without merges: byte b of ASCII is some id above 0, and 0 the end of text."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|endoftext|>": 0, **{c: i for i, c in enumerate(alphabet, 1)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    path.write_text(json.dumps({**json.loads(tokenizer.to_str()), **changes}))
    return TextTokenizer.open(path)


def test_special_tokens_spelled_out_are_text(tmp_path):
    tokenizer = byte_level(tmp_path / "t.json")
    (ids,) = tokenizer.encode(["a<|endoftext|>b"])
    assert len(ids) == 15 and 0 not in ids
    assert tokenizer.tokenizer.decode(ids.tolist()) == "a<|endoftext|>b"


def test_nothing_is_cut_or_padded(tmp_path):
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    padding = {"strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
    padding |= {"pad_type_id": 0, "pad_token": "<|endoftext|>"}
    tokenizer = byte_level(tmp_path / "t.json", truncation=truncation, padding=padding)
    assert [len(ids) for ids in tokenizer.encode(["a" * 20, "b"])] == [20, 1]


def test_gpt2_samples(shared, tmp_path):
    folder = shared / "data" / "gpt2_tokenizer"
    gpt2 = tokenizers.ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    gpt2.add_special_tokens(["<|endoftext|>"])
    gpt2.save(str(tmp_path / "t.json"))
    tokenizer = TextTokenizer.open(tmp_path / "t.json")
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (50257, 50256)
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    for sample, ids in zip(samples, tokenizer.encode([sample["text"] for sample in samples])):
        assert ids.dtype == np.uint32 and ids.tolist() == sample["ids"]


def test_tokenizers_refused(tmp_path):
    path = cli.make_tokenizer(tmp_path / "t.json")
    refuses(ValueError, lambda: TextTokenizer.open(path, "<nope>"), "t.json", "--end-of-text")
    assert TextTokenizer.open(path, "w4").end_of_text == 4
    for content in (b"", b"{}", b"\xff\x00junk", path.read_bytes()[:-30]):
        (tmp_path / "bad.json").write_bytes(content)
        refuses(ValueError, lambda: TextTokenizer.open(tmp_path / "bad.json"), "bad.json", "tokenizer.json")
    with pytest.raises(FileNotFoundError):
        TextTokenizer.open(tmp_path / "none.json")


def test_digits_are_an_id():
    """Also where the vocabulary has a token of these digits, as byte-level BPE has."""
    vocab = {"<|endoftext|>": 0, "2": 1, "<|im_end|>": 2}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="2")).to_str().encode()
    for given, wanted in (("2", 2), (2, 2), (0, 0), ("1", 1), ("<|im_end|>", 2), (None, 0)):
        assert TextTokenizer.from_bytes(raw, given).end_of_text == wanted
    for given in ("3", 3, 1 << 40, "none"):
        with refused(ValueError, given):
            TextTokenizer.from_bytes(raw, given)
