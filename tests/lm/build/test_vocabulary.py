"""Words as tokens: how text is cut, numbered in one pass, and looked up."""

import json

import numpy as np
from support.refusals import refuses

from rescore.lm.build import numbering
from rescore.lm.build.inputs import plan
from rescore.lm.build.numbering import number_words
from rescore.lm.build.work import WorkFolder
from rescore.lm.model import vocabulary
from rescore.lm.model.vocabulary import Vocabulary, split


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
        monkeypatch.setattr(numbering, "BATCH", batch)
        found, ids, skipped = numbered(tmp_path, "a.txt", "b.jsonl")
        assert found.spelled == ("<unk>", "</s>", "the", "cat", "dog", "and", "é")
        assert ids == [2, 3, 1, 2, 0, 4, 1, 4, 5, 6, 1]
        assert skipped == [{"documents": 0, "reasons": {}, "examples": [], "notes": []}]
        for path in sorted((tmp_path / "work").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


def test_lines_that_hold_boundaries_are_skipped(tmp_path):
    (tmp_path / "a.txt").write_text("a b\nc </s> d\n<s> e\na<s>\n")
    found, ids, (skipped,) = numbered(tmp_path, "a.txt")
    assert found.spelled == ("<unk>", "</s>", "a", "b", "a<s>") and ids == [2, 3, 1, 4, 1]
    assert skipped["reasons"] == {"holds the end of text": 2}
    assert skipped["examples"][0] == f"{tmp_path / 'a.txt'}, line 2: contains the word </s>, which would split it"
    (tmp_path / "work" / "manifest.json").unlink()
    for name in ("words/ids.bin", "words/words.txt"):
        (tmp_path / "work" / name).unlink()
    (tmp_path / "work" / "words").rmdir()
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt", strict=True), "a.txt", "2", "</s>")


def test_what_was_numbered_is_not_read_again(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("a b\n")
    first = numbered(tmp_path, "a.txt")[:2]
    monkeypatch.setattr(numbering, "documents", None)
    again = numbered(tmp_path, "a.txt")[:2]
    assert (first[0].spelled, first[1]) == (again[0].spelled, again[1])
    (tmp_path / "a.txt").write_text("a b c\n")
    refuses(ValueError, lambda: numbered(tmp_path, "a.txt"), "work")


def test_too_many_words(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "MAX_VOCABULARY", 4)
    (tmp_path / "a.txt").write_text("a b\n")
    assert numbered(tmp_path, "a.txt")[0].vocab_size == 4
    (tmp_path / "b.txt").write_text("a b c\n")
    (tmp_path / "more").mkdir()
    (tmp_path / "b.txt").rename(tmp_path / "more" / "b.txt")
    refuses(ValueError, lambda: numbered(tmp_path / "more", "b.txt"), "words", "4", "--tokenizer")


def test_words_are_looked_up():
    found = Vocabulary(spelled=("a", "<unk>", "</s>", "b"), end_of_text=2)
    one, two, none = found.encode(["b a zebra", "a </s> <s>", " "])
    assert one.tolist() == [3, 0, 1] and two.tolist() == [0, 2, 2] and none.tolist() == []
    assert (found.vocab_size, found.unknown, found.words(5)) == (4, 1, ("a", "<unk>", "</s>", "b", ""))
