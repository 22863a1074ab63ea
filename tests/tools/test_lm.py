"""The bench of language models: one model in the formats of several engines, whose scores must agree."""

import sys

import numpy as np
import pytest
from support import dumps
from support.tools import load_tool

lm = load_tool("bench/lm")

from rescore.lm.model.ngram import NGram


@pytest.fixture(scope="module")
def text(world):
    path = world / "text.npy"
    np.save(path, np.random.default_rng(3).integers(1, dumps.V, 3500).astype(np.uint16))
    return path


@pytest.mark.slow
def test_every_engine(world, text, monkeypatch, capsys):
    """Those that score have times; bytes are those of the file where it is mapped."""
    monkeypatch.setattr(lm.shutil, "which", lambda name: None)
    model = NGram.open(world / "lm.ngram")
    found = dict(lm.compare(model, lm.text_of(text, model, 2500), 1))
    scored, opened = ["ours", "KenLM, probing, from ARPA"], ["OpenFst, ConstFst", "OpenFst, VectorFst"]
    assert [*found] == [*scored, *opened]
    for name, own in found.items():
        assert own["open_ms"] > 0 and own["file_mib"] > 0 and ("walk_us" in own) == (name in scored)
        if name in scored:
            assert 0 < own["walk_us"] <= own["walk_p99_us"] and 0 < own["random_us"] <= own["random_p99_us"]
    ours, theirs = (found[name] for name in scored)
    assert ours["bytes_per_ngram"] == pytest.approx(2**20 * ours["file_mib"] / sum(model.info()["ngrams"]))
    assert theirs["times_ours"] == pytest.approx(theirs["walk_us"] / ours["walk_us"])


@pytest.mark.slow
def test_scores_that_differ(world, text, monkeypatch):
    right = lm.measure

    def wrong(peer, text, rounds):
        own = right(peer, text, rounds)
        return {**own, "costs": [cost + 1 for cost in own["costs"]]} if peer.engine == "kenlm" else own

    monkeypatch.setattr(lm, "measure", wrong)
    monkeypatch.setattr(sys, "argv", ["lm.py", str(world / "lm.ngram"), str(text), "--rounds", "1"])
    with pytest.raises(SystemExit, match="KenLM, probing, from ARPA and ours disagree on token"):
        lm.main()


def test_a_dump_is_a_text(world):
    model = NGram.open(world / "lm.ngram")
    tokens = lm.text_of(world / "dump", model, 40)
    assert tokens.dtype == np.int32 and len(tokens) == 40 and tokens.max() < model.vocab_size
