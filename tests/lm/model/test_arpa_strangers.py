"""ARPA files as other programs write and read them: scores are KenLM's; sentences end as theirs do."""

import bz2
import gzip
import io
import lzma
import random

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import assert_same_model
from support.refusals import assert_named, refused, refuses

from rescore.lm.build.in_memory import build
from rescore.lm.model.arpa import LN10, ArpaOptions, read_arpa
from rescore.lm.model.arpa_write import unwritable_word, write_arpa
from rescore.lm.model.formats import is_model_file, load
from rescore.lm.model.ngram import NGram
from rescore.lm.model.perplexity import score_texts, with_sentence_marks
from rescore.lm.model.tables import Tables
from rescore.lm.model.vocabulary import GrowingVocabulary, Vocabulary

SENTENCES = ("zebra", "a", "a zebra a", "zebra zebra", "<UNK>", "<unk>", "<Unk>", "<S>")


def text(*unigrams, bigram="-0.4\t<s> a", before="", end="\n"):
    """An ARPA file with the given unigrams; <s>, </s>, <unk> and a by default."""
    found = unigrams or ("-1.2\t<unk>\t-0.1", "-99\t<s>\t-0.3", "-0.5\t</s>", "-0.7\ta\t-0.2")
    head = [f"{before}\\data\\", f"ngram 1={len(found)}", f"ngram 2={bigram.count(chr(10)) + 1}", ""]
    return end.join([*head, "\\1-grams:", *found, "", "\\2-grams:", *bigram.split("\n"), "", "\\end\\", ""])


PLAIN = text()
CASES = {
    "unk": PLAIN,
    "UNK": PLAIN.replace("<unk>", "<UNK>"),
    "UNK in a bigram": text(bigram="-0.4\t<s> a\n-0.6\ta <UNK>\n-0.3\t<unk> a"),
    "Unk": PLAIN.replace("<unk>", "<Unk>"),
    "[UNK]": PLAIN.replace("<unk>", "[UNK]"),
    "no unk": text("-99\t<s>\t-0.3", "-0.5\t</s>", "-0.7\ta\t-0.2"),
    "comments": text(before="# made elsewhere\n\n#\n"),
    "blank lines": text(before="\n \t\n"),
    "carriage returns": text(end="\r\n"),
    "-inf of <s>": PLAIN.replace("-99\t<s>", "-inf\t<s>"),
    "tabs in a bigram": PLAIN.replace("<s> a", "<s>\ta"),
    "spaces before": PLAIN.replace("-0.7\ta", " -0.7\ta"),
    "exponents": PLAIN.replace("-0.7", "-7e-1").replace("-0.2", "+2E-1"),
    "no bigrams": PLAIN.replace("ngram 2=1", "ngram 2=0").replace("-0.4\t<s> a\n", ""),
}


def log10_of(model, sentence):
    """From <s> to </s>, as KenLM's `score`."""
    model = with_sentence_marks(model)
    vocabulary = Vocabulary(spelled=model.words, end_of_text=model.metadata["eos"])
    tokens = np.append(vocabulary.encode([sentence])[0], vocabulary.end_of_text)
    parts = score_texts(model, [tokens], end_of_text=vocabulary.end_of_text, bos=model.metadata["bos"])
    return -sum(float(part.cost.sum()) for part in parts) / np.log(10)


@pytest.mark.parametrize("case", CASES)
def test_scores_are_kenlms(tmp_path, case):
    import kenlm

    path = tmp_path / "model.arpa"
    path.write_bytes(CASES[case].encode())
    theirs, ours = kenlm.Model(str(path)), read_arpa(path)
    for sentence in SENTENCES:
        assert log10_of(ours, sentence) == pytest.approx(theirs.score(sentence), abs=1e-4)


@pytest.mark.parametrize("name", ["test.arpa", "test_nounk.arpa"])
def test_kenlms_own_models(shared, name):
    import kenlm

    path, draw = shared / "reference" / "kenlm" / name, random.Random(name)
    theirs, ours = kenlm.Model(str(path)), read_arpa(path)
    words = "also would consider higher looking on a little more loin beyond immediate unheard".split()
    for _ in range(100):
        sentence = " ".join(draw.choices(words, k=draw.randint(1, 9)))
        assert log10_of(ours, sentence) == pytest.approx(theirs.score(sentence), abs=1e-4)


@pytest.mark.parametrize("lacking", [["<s>"], ["</s>"], ["<s>", "</s>"]])
def test_a_missing_sentence_mark_is_the_unknown_word(tmp_path, lacking):
    """As in KenLM after `build_binary -s`; its Python package refuses the file, so the marks are spelled as unknown."""
    import kenlm

    lines = ["-1.2\t<unk>\t-0.1", "-99\t<s>\t-0.3", "-0.5\t</s>", "-0.7\ta\t-0.2"]
    bigram = "-0.4\t<unk> a\n-0.9\ta <unk>\n-0.6\t<unk> <unk>"
    (tmp_path / "whole.arpa").write_text(text(*lines, bigram=bigram))
    kept = [line for line in lines if line.split("\t")[1] not in lacking]
    (tmp_path / "model.arpa").write_text(text(*kept, bigram=bigram))
    theirs = kenlm.Model(str(tmp_path / "whole.arpa"))
    read_arpa(tmp_path / "model.arpa").save(tmp_path / "model.ngram")
    bos, eos = "<s>" not in lacking, "</s>" not in lacking
    for sentence in SENTENCES:
        inner = "oov " * (not bos) + sentence + " oov" * (not eos)
        scores = [logp for logp, _, _ in theirs.full_scores(inner, bos=bos, eos=eos)]
        for name in ("model.arpa", "model.ngram"):
            assert log10_of(load(tmp_path / name), sentence) == pytest.approx(sum(scores[not bos :]), abs=1e-4)


def test_two_spellings_of_the_unknown_word_are_refused(tmp_path):
    """KenLM takes the later of them."""
    (tmp_path / "model.arpa").write_text(text("-1\t<unk>", "-2\t<UNK>", "-99\t<s>", "-1\t</s>", "-1\ta"))
    refuses(ValueError, lambda: read_arpa(tmp_path / "model.arpa"), "model.arpa:7")
    assert_named(unwritable_word(["<unk>", "<UNK>"]), ["readers"])
    assert list(GrowingVocabulary().encode("<UNK> a <unk>")) == [0, 2, 0]
    model = NGram.from_tables(NGram.uniform(2).to_tables(), words=["<UNK>", "a"])
    assert model.ids(["b", "a"]).tolist() == [0, 1]
    write_arpa(model, tmp_path / "again.arpa")
    assert read_arpa(tmp_path / "again.arpa").words == ("<unk>", "a")


@pytest.mark.parametrize(
    "name, packing",
    [("a.lm", "plain"), ("a.arpa", "gzip"), ("a.arpa.zst", "bzip2"), ("a.bz2", "xz"), ("a.xz", "zstd")],
)
def test_names_and_packings(tmp_path, name, packing):
    """The packing is told by the content, as in KenLM."""
    packers = {"plain": bytes, "gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}
    packers["zstd"] = lambda data: pyarrow.compress(data, "zstd", asbytes=True)
    path, data = tmp_path / name, packers[packing](PLAIN.encode())
    path.write_bytes(data)
    assert is_model_file(path) and log10_of(load(path), "a") == pytest.approx(-1.1, abs=1e-6)
    if packing != "plain":
        path.write_bytes(data[: len(data) // 2])
        refuses(ValueError, lambda: load(path), name, packing)


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "model.arpa"
    path.write_bytes(b"\xef\xbb\xbf" + PLAIN.encode())
    assert log10_of(read_arpa(path), "a") == pytest.approx(-1.1, abs=1e-6)
    path.write_bytes(b"\xef\xbb\xbf")
    refuses(ValueError, lambda: read_arpa(path), "model.arpa:1")


def test_a_probability_of_zero_stays_zero(tmp_path):
    """KenLM gives -inf; costs here are finite."""
    path = tmp_path / "model.arpa"
    path.write_text(PLAIN.replace("-0.4\t<s>", "-inf\t<s>"))
    model = read_arpa(path)
    assert log10_of(model, "zebra") == pytest.approx(-1.2 - 0.3 - 0.1 - 0.5, abs=1e-4)
    assert log10_of(model, "a") < -99_999
    write_arpa(model, tmp_path / "again.arpa")
    assert log10_of(read_arpa(tmp_path / "again.arpa"), "a") < -99_999
    path.write_text(PLAIN.replace("a\t-0.2", "a\t-inf"))
    refuses(ValueError, lambda: read_arpa(path), "model.arpa:9")


V, EOT = 9, 5
WORDS = tuple("<|end|>" if i == EOT else f"w{i}" for i in range(V))


def documents(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    others = np.delete(np.arange(V), EOT)
    return [rng.choice(others, rng.integers(1, 8)) for _ in range(40)]


def model_of(seed: int, order: int, words=WORDS) -> NGram:
    return build(documents(seed), order=order, vocab_size=V, end_of_text=EOT, words=words)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(["text", "ids"]))
def test_read_back_it_is_the_same_model(tmp_path_factory, seed, order, words):
    model, path = model_of(seed, order), tmp_path_factory.getbasetemp() / "sentences.arpa"
    write_arpa(model, path, words=words, sentence_ends=True)
    again = read_arpa(path, ArpaOptions(end_of_text=EOT, vocab_size=V))
    assert_same_model(again, model)
    assert again.metadata["end_of_text"] == EOT
    if words == "text":
        assert again.words == (*WORDS[:EOT], "</s>", *WORDS[EOT + 1 :])


@pytest.mark.parametrize("order", [2, 4])
@pytest.mark.parametrize("words", ["text", "ids"])
def test_kenlm_scores_sentences_as_we_score_documents(tmp_path, order, words):
    import kenlm

    model = model_of(order, order)
    write_arpa(model, tmp_path / "m.arpa", words=words, sentence_ends=True)
    peer = kenlm.Model(str(tmp_path / "m.arpa"))
    for ids in documents(order + 100):
        text = " ".join(WORDS[i] if words == "text" else str(i) for i in ids)
        theirs = [-p * LN10 for p, _, _ in peer.full_scores(text, bos=True, eos=True)]
        np.testing.assert_allclose(model.score([*ids, EOT], history=[EOT]), theirs, atol=1e-4)


def test_a_context_whose_backoff_weight_is_one_is_read(tmp_path):
    """<s> has neither probability nor backoff then, and yet is no place holder."""
    tables = Tables.from_ngrams({(0,): (0.5, 1.0), (1,): (0.5, 1.0), (0, 1): (0.5, 1.0)}, vocab_size=2)
    model = NGram.from_tables(tables, metadata={"end_of_text": 0})
    write_arpa(model, tmp_path / "m.arpa", sentence_ends=True)
    assert_same_model(read_arpa(tmp_path / "m.arpa", ArpaOptions(end_of_text=0)), model)


def test_models_that_have_no_sentences_are_refused(tmp_path):
    model = model_of(1, 3)
    nameless = NGram.from_tables(model.to_tables(), words=WORDS, metadata={"end_of_text": None})
    refuses(ValueError, lambda: write_arpa(nameless, tmp_path / "m.arpa", sentence_ends=True), "sentence ends")
    for word in ("<s>", "</s>"):
        named = NGram.from_tables(model.to_tables(), words=(word, *WORDS[1:]))
        with refused(ValueError, "sentence ends", word):
            write_arpa(named, tmp_path / "m.arpa", sentence_ends=True)
        write_arpa(named, tmp_path / "m.arpa", words="ids", sentence_ends=True)
        (tmp_path / "m.arpa").unlink()
    across = {(0,): (0.5, 1.0), (1,): (0.5, 1.0), (1, 0): (0.5, 1.0), (0, 1): (0.5, 1.0), (1, 0, 1): (0.5, 1.0)}
    inside = NGram.from_tables(Tables.from_ngrams(across, vocab_size=2), metadata={"end_of_text": 0})
    refuses(ValueError, lambda: write_arpa(inside, tmp_path / "m.arpa", sentence_ends=True), "[1, 0, 1]")
    assert not list(tmp_path.iterdir())


def test_gzip_from_a_pipe_is_refused(tmp_path, monkeypatch):
    write_arpa(model_of(1, 2), tmp_path / "m.arpa.gz")
    with open(tmp_path / "m.arpa.gz", "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        refuses(ValueError, lambda: read_arpa("-"), "standard input", "gzip")
