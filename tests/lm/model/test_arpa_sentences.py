"""ARPA files of sentences: the end of text as <s> and </s>, by KenLM's scores and read back."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import assert_same_model
from support.refusals import refused, refuses

from rescore.lm.build.in_memory import build
from rescore.lm.model.arpa import LN10, ArpaOptions, read_arpa
from rescore.lm.model.arpa_write import write_arpa
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

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
