"""Text to tokens: batches, ends of documents, vocabularies, what is left out."""

import json
import shutil

import numpy as np
import pytest
from support import cli
from support.refusals import assert_named, refused, refuses

from rescore.lm.build import sources, tokens
from rescore.lm.build.inputs import plan
from rescore.lm.build.sources import number_words
from rescore.lm.build.tokens import numbered_tokens
from rescore.lm.build.work import WorkFolder
from rescore.lm.model import vocabulary
from rescore.lm.model.tokenizer import TextTokenizer
from rescore.lm.model.vocabulary import Skipped, Vocabulary, split


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> TextTokenizer:
    return TextTokenizer.open(cli.make_tokenizer(tmp_path_factory.mktemp("tokenize") / "tokenizer.json"))


def read(path, tokenizer, end_of_text=0, **options) -> list[np.ndarray]:
    options = {"vocab_size": tokenizer.vocab_size, "end_of_text": end_of_text, "tokenizer": tokenizer, **options}
    pieces = plan([path], vocab_size=options["vocab_size"], tokenizer=tokenizer)
    return [documents.tokens for piece in pieces for documents in numbered_tokens(piece, **options)]


def write(path, texts) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


@pytest.mark.parametrize("batch", [1, 50, 1 << 20])
def test_documents_keep_their_order(tmp_path, tokenizer, monkeypatch, batch):
    monkeypatch.setattr(tokens, "BATCH", batch)
    write(tmp_path / "a.jsonl", [f"w{i % 49 + 1} w2" if i % 5 else " " * (i % 2) for i in range(600)])
    arrays = read(tmp_path / "a.jsonl", tokenizer)
    assert np.concatenate(arrays).tolist() == [token for i in range(600) if i % 5 for token in (i % 49 + 1, 2, 0)]
    assert all(array.dtype == np.uint16 and array[-1] == 0 for array in arrays)


def test_ids_beyond_16_bits(tmp_path):
    tokenizer = TextTokenizer.open(cli.make_tokenizer(tmp_path / "t.json", size=65_538))
    write(tmp_path / "a.jsonl", ["w65535 w65536 w65537", "w1"])
    (array,) = read(tmp_path / "a.jsonl", tokenizer)
    assert array.dtype == np.uint32 and array.tolist() == [65_535, 65_536, 65_537, 0, 1, 0]


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


def test_refused(tmp_path, tokenizer, monkeypatch):
    write(tmp_path / "a.jsonl", ["w1"])
    refuses(ValueError, lambda: read(tmp_path / "a.jsonl", tokenizer, vocab_size=49), "a.jsonl", "50", "49")
    (piece,) = plan([tmp_path / "a.jsonl"], vocab_size=50, tokenizer=tokenizer)
    refuses(ValueError, lambda: list(numbered_tokens(piece, vocab_size=50, end_of_text=0)), "a.jsonl", "--tokenizer")
    monkeypatch.setattr(tokens, "BATCH", 1)  # what was encoded before a bad line is under way when it is met
    (tmp_path / "a.jsonl").write_text('{"text": "w1"}\n' * 20 + "bad\n")
    refuses(ValueError, lambda: read(tmp_path / "a.jsonl", tokenizer), "bad", "a.jsonl", "21")


def numbered(tmp_path, *names, **options):
    """Words and ids of files."""
    work = WorkFolder(tmp_path / "work")
    try:
        pieces = plan([tmp_path / name for name in names], vocab_size=1 << 24, tokenizer=Vocabulary.empty())
        found = number_words(work, pieces, **options)
        return found.vocabulary, np.fromfile(found.piece.path, np.uint32).tolist(), work.skipped()
    finally:
        work.close()


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
        shutil.rmtree(tmp_path / "work")


def test_lines_that_hold_boundaries_are_skipped(tmp_path):
    (tmp_path / "a.txt").write_text("a b\nc </s> d\n<s> e\na<s>\n")
    found, ids, (skipped,) = numbered(tmp_path, "a.txt")
    assert found.spelled == ("<unk>", "</s>", "a", "b", "a<s>") and ids == [2, 3, 1, 4, 1]
    assert skipped["reasons"] == {"holds the end of text": 2}
    assert_named(skipped["examples"][0], [tmp_path / "a.txt", "2", "</s>"])
    shutil.rmtree(tmp_path / "work")
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt", strict=True), "a.txt", "2", "</s>")


def test_what_was_numbered_is_not_read_again(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a b\n")
    first = numbered(tmp_path, "a.txt")[:2]
    monkeypatch.setattr(sources, "documents", None)
    again = numbered(tmp_path, "a.txt")[:2]
    assert (first[0].spelled, first[1]) == (again[0].spelled, again[1])
    (tmp_path / "a.txt").write_text("a b c\n")
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt"), "work")


def test_too_many_words(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_VOCABULARY", 4)
    (tmp_path / "a.txt").write_text("a b\n")
    assert numbered(tmp_path, "a.txt")[0].vocab_size == 4
    shutil.rmtree(tmp_path / "work")
    (tmp_path / "a.txt").write_text("a b c\n")
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt"), "words", "4", "--tokenizer")
