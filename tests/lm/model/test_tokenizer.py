"""Tokenizers: what they say about themselves, which are refused."""

import hashlib
import json

import numpy as np
import tokenizers
from support import cli
from support.refusals import refused, refuses

from rescore.lm.build.word_ids import encoder_of
from rescore.lm.model.tokenizer import TextTokenizer


def test_tokenizer(tmp_path):
    path = cli.make_tokenizer(tmp_path / "t.json", size=7)
    tokenizer = TextTokenizer.open(path)
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (7, 0)
    assert tokenizer.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert tokenizer.words() == ("<|endoftext|>", "w1", "w2", "w3", "w4", "w5", "w6")
    assert tokenizer.words(9)[6:] == ("w6", "", "")
    assert [ids.tolist() for ids in tokenizer.encode(["w3 w1", ""])] == [[3, 1], []]


def test_vocabularies_with_holes():
    """V is the greatest id + 1, not the number of tokens."""
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel({"</s>": 0, "b": 9}, unk_token="b")).to_str()
    assert TextTokenizer.from_bytes(raw.encode()).vocab_size == 10


def test_special_tokens_spelled_out_are_text_and_nothing_is_cut_or_padded():
    """By a byte-level BPE without merges: byte b of ASCII is some id above 0, and 0 the end of text."""
    vocab = {c: i for i, c in enumerate(["<|endoftext|>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())])}
    package = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    package.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    package.decoder = tokenizers.decoders.ByteLevel()
    package.add_special_tokens(["<|endoftext|>"])
    package.enable_truncation(3)
    package.enable_padding(length=8)
    tokenizer = TextTokenizer.from_bytes(package.to_str().encode())
    long, short = tokenizer.encode(["a<|endoftext|>b", "b"])
    assert (len(long), len(short)) == (15, 1) and 0 not in long
    assert tokenizer.tokenizer.decode(long.tolist()) == "a<|endoftext|>b"


def test_gpt2_samples(shared, tmp_path):
    folder = shared / "data" / "gpt2_tokenizer"
    gpt2 = tokenizers.ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    gpt2.add_special_tokens(["<|endoftext|>"])
    gpt2.save(str(tmp_path / "t.json"))
    tokenizer = TextTokenizer.open(tmp_path / "t.json")
    assert (tokenizer.vocab_size, tokenizer.end_of_text) == (50257, 50256)
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    for encode in (tokenizer.encode, encoder_of(tokenizer)):
        for sample, ids in zip(samples, encode([sample["text"] for sample in samples])):
            assert ids.dtype == np.uint32 and ids.tolist() == sample["ids"]


def test_tokenizers_refused(tmp_path):
    path = cli.make_tokenizer(tmp_path / "t.json")
    refuses(ValueError, lambda: TextTokenizer.open(path, "<nope>"), "t.json", "--end-of-text")
    assert TextTokenizer.open(path, "w4").end_of_text == 4
    for content in (b"", b"{}", b"\xff\x00junk", path.read_bytes()[:-30]):
        (tmp_path / "bad.json").write_bytes(content)
        refuses(ValueError, lambda: TextTokenizer.open(tmp_path / "bad.json"), "bad.json", "tokenizer.json")
    refuses(FileNotFoundError, lambda: TextTokenizer.open(tmp_path / "none.json"), "none.json")


def test_digits_are_an_id():
    """Also where the vocabulary has a token of these digits, as byte-level BPE has."""
    vocab = {"<|endoftext|>": 0, "2": 1, "<|im_end|>": 2}
    raw = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="2")).to_str().encode()
    for named, wanted in (("2", 2), (2, 2), (0, 0), ("1", 1), ("<|im_end|>", 2), (None, 0)):
        assert TextTokenizer.from_bytes(raw, named).end_of_text == wanted
    for named in ("3", 3, 1 << 40, "none"):
        with refused(ValueError, named):
            TextTokenizer.from_bytes(raw, named)
