"""Text to tokens: batches, ends of documents, vocabularies, what is left out."""

import json

import numpy as np
import pytest
from support import cli
from support.refusals import refused, refuses

from rescore.lm.build import tokenize
from rescore.lm.build.inputs import plan
from rescore.lm.build.tokenize import tokens_of
from rescore.lm.model.tokenizer import TextTokenizer
from rescore.lm.model.vocabulary import Skipped


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> TextTokenizer:
    return TextTokenizer.open(cli.make_tokenizer(tmp_path_factory.mktemp("tokenize") / "tokenizer.json"))


def read(path, tokenizer, vocab_size=None, skipped=None, end_of_text=None) -> list[np.ndarray]:
    vocab_size, end_of_text = (
        vocab_size or tokenizer.vocab_size,
        tokenizer.end_of_text if end_of_text is None else end_of_text,
    )
    return [
        array
        for piece in plan([path], vocab_size=vocab_size, tokenizer=tokenizer)
        for array in tokens_of(
            piece, vocab_size=vocab_size, end_of_text=end_of_text, tokenizer=tokenizer, skipped=skipped
        )
    ]


def write(path, texts) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.mark.parametrize("batch", [1, 50, 1 << 20])
def test_documents_keep_their_order(tmp_path, tokenizer, monkeypatch, batch):
    monkeypatch.setattr(tokenize, "BATCH", batch)
    write(tmp_path / "a.jsonl", [f"w{i % 49 + 1} w2" if i % 5 else " " * (i % 2) for i in range(600)])
    arrays = read(tmp_path / "a.jsonl", tokenizer)
    assert np.concatenate(arrays).tolist() == [token for i in range(600) if i % 5 for token in (i % 49 + 1, 2, 0)]
    assert all(array.dtype == np.uint16 and array[-1] == 0 for array in arrays)


def test_nothing(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", ["", " "])
    assert read(tmp_path / "a.jsonl", tokenizer) == []


def test_ids_beyond_16_bits(tmp_path):
    tokenizer = TextTokenizer.open(cli.make_tokenizer(tmp_path / "t.json", size=70_001))
    write(tmp_path / "a.jsonl", ["w65535 w65536 w70000", "w1"])
    (array,) = read(tmp_path / "a.jsonl", tokenizer)
    assert array.dtype == np.uint32 and array.tolist() == [65_535, 65_536, 70_000, 0, 1, 0]


def test_texts_that_hold_the_end_of_text(tmp_path, tokenizer):
    """This tokenizer has no other ids for the words <|endoftext|>; where others have, they are used
    (test_tokenizer.py).
    """
    write(tmp_path / "a.jsonl", ["w1", "w2 <|endoftext|> w3", "w4"])
    skipped = Skipped()
    (array,) = read(tmp_path / "a.jsonl", tokenizer, skipped=skipped)
    assert array.tolist() == [1, 0, 4, 0] and skipped.reasons == {"holds the end of text": 1}
    refuses(ValueError, lambda: read(tmp_path / "a.jsonl", tokenizer), "a.jsonl", "2", "0")
    (array,) = read(tmp_path / "a.jsonl", tokenizer, end_of_text=9)
    assert array.tolist() == [1, 9, 2, 0, 3, 9, 4, 9]


def test_tokenizers_that_fail(tmp_path):
    from tokenizers import Tokenizer, models

    made = Tokenizer(models.WordLevel({"</s>": 0, "a": 1}, unk_token="missing"))
    made.save(str(tmp_path / "t.json"))
    write(tmp_path / "a.jsonl", ["a", "", "b"])
    with refused(ValueError, "a.jsonl", "1", "2"):
        read(tmp_path / "a.jsonl", TextTokenizer.open(tmp_path / "t.json"), skipped=Skipped())


def test_errors_of_later_lines(tmp_path, tokenizer, monkeypatch):
    """What was encoded before the bad line is under way when it is met."""
    monkeypatch.setattr(tokenize, "BATCH", 1)
    (tmp_path / "a.jsonl").write_text('{"text": "w1"}\n' * 20 + "bad\n")
    refuses(ValueError, lambda: read(tmp_path / "a.jsonl", tokenizer), "bad", "a.jsonl", "21")


def test_refused(tmp_path, tokenizer):
    write(tmp_path / "a.jsonl", ["w1"])
    (piece,) = plan([tmp_path / "a.jsonl"], vocab_size=50, tokenizer=tokenizer)
    refuses(ValueError, lambda: list(tokens_of(piece, vocab_size=50, end_of_text=0)), "a.jsonl", "--tokenizer")
    with refused(ValueError, "a.jsonl", "50", "49"):
        list(tokens_of(piece, vocab_size=49, end_of_text=0, tokenizer=tokenizer))


def test_a_reader_that_leaves(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenize, "BATCH", 1)
    write(tmp_path / "a.jsonl", ["w1"] * 50)
    (piece,) = plan([tmp_path / "a.jsonl"], vocab_size=50, tokenizer=tokenizer)
    arrays = tokens_of(piece, vocab_size=50, end_of_text=0, tokenizer=tokenizer)
    assert next(arrays).tolist() == [1, 0]
    arrays.close()


def test_real_text(shared, tmp_path):
    """GPT-2 tokens of real documents, against the package called document by document."""
    import gzip

    import tokenizers

    folder = shared / "data" / "gpt2_tokenizer"
    gpt2 = tokenizers.ByteLevelBPETokenizer(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    path = shared / "data" / "text_govweb" / "test.jsonl.gz"
    texts = [json.loads(line)["text"] for line in gzip.open(path)]
    expected = [token for text in texts for token in (*gpt2.encode(text).ids, 50256)]
    gpt2.add_special_tokens(["<|endoftext|>"])
    gpt2.save(str(tmp_path / "t.json"))
    assert np.concatenate(read(path, TextTokenizer.open(tmp_path / "t.json"))).tolist() == expected
