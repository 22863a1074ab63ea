"""Corpora sampled from n-gram models: the model's own distribution, shards that can be made again."""

import json
import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oracle_lm import from_tables, random_tables
from support.refusals import refused, refuses
from support.tools import load_tool

from rescore.lm.model import example
from rescore.lm.model.ngram import NGram
from rescore.lm.model.tables import Tables

sample_corpus = load_tool("bench/sample_corpus")
ngram_sampler = load_tool("bench/ngram_sampler")


@pytest.fixture(scope="module")
def worked() -> NGram:
    tables = Tables.from_ngrams(example.NGRAMS, vocab_size=6)
    return NGram.from_tables(tables, words=example.WORDS, metadata={"end_of_text": example.STOP})


def firsts(model: NGram, start: int, draws: int, seed: int, shorten: float = 0.0) -> np.ndarray:
    """How often each token was the first one drawn in a state, [V]."""
    drawn = ngram_sampler.Sampler(model).sequences(start, (draws, 1), np.random.default_rng(seed), shorten)
    return np.bincount(drawn[:, 0], minlength=model.vocab_size)


def assert_drawn_from(seen: np.ndarray, p: np.ndarray) -> None:
    """Pearson's statistic is within five standard deviations of its mean, the degrees of freedom."""
    expected = p * seen.sum()
    freedom = len(p) - 1
    assert ((seen - expected) ** 2 / expected).sum() < freedom + 5 * math.sqrt(2 * freedom)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_every_state_is_sampled_from_its_distribution(seed, order):
    tables = random_tables(seed, order, vocab_size=7, tokens=60)
    model, slow, pick = NGram.from_tables(tables), from_tables(tables), random.Random(seed)
    context = pick.choice(sorted(slow.states()))
    p = np.exp([-slow.of(context, token) for token in range(7)])
    seen = firsts(model, model.start(list(context)), 20_000, seed)
    np.testing.assert_allclose(seen / 20_000, p / p.sum(), atol=6 * 0.5 / math.sqrt(20_000))


def test_tokens_that_follow_are_drawn_in_the_state_after(worked):
    drawn = ngram_sampler.Sampler(worked).sequences(
        worked.start([example.STOP]), (200_000, 3), np.random.default_rng(5)
    )
    cells = np.ravel_multi_index(tuple(drawn.T), (6, 6, 6))
    slow = from_tables(worked.to_tables())
    p = np.array(
        [
            math.exp(-slow.of((), a) - slow.of((a,), b) - slow.of((a, b), c))
            for a in range(6)
            for b in range(6)
            for c in range(6)
        ]
    )
    assert_drawn_from(np.bincount(cells, minlength=216), p)


def test_shortened_contexts_mix_in_the_lower_order(worked):
    drawn = ngram_sampler.Sampler(worked).sequences(0, (300_000, 2), np.random.default_rng(3), shorten=0.25)
    after = drawn[drawn[:, 0] == example.LIONEL, 1]
    full, shorter = (np.exp(-worked.distribution(worked.start(h))) for h in ([example.LIONEL], []))
    assert_drawn_from(np.bincount(after, minlength=6), 0.75 * full + 0.25 * shorter)


def run(monkeypatch, model, folder, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sample_corpus.py", str(model), "-o", str(folder), *options])
    sample_corpus.main()


@pytest.fixture
def saved(worked, tmp_path):
    worked.save(tmp_path / "lm.ngram")
    return tmp_path / "lm.ngram"


def test_shards_are_whole_documents_and_can_be_made_again(monkeypatch, saved, tmp_path):
    options = ("--tokens", "7k", "--shard-tokens", "3k", "--seed", "9")
    run(monkeypatch, saved, tmp_path / "a", *options)
    shards = [np.load(tmp_path / "a" / f"shard-{i:05}.npy") for i in range(3)]
    assert [(s.dtype, len(s), s[-1]) for s in shards] == [(np.uint16, n, example.STOP) for n in (3000, 3000, 1000)]
    assert (shards[0] != shards[1]).any()
    first, third = ((tmp_path / "a" / f"shard-0000{i}.npy") for i in (0, 2))
    kept, made = first.stat().st_mtime_ns, third.read_bytes()
    third.unlink()
    run(monkeypatch, saved, tmp_path / "a", *options)
    assert first.stat().st_mtime_ns == kept and third.read_bytes() == made
    assert json.loads((tmp_path / "a" / "corpus.json").read_text())["seed"] == 9


def test_shards_of_large_vocabularies_are_of_four_bytes(monkeypatch, tmp_path):
    size = (1 << 16) + 10
    tables = Tables.from_ngrams({(token,): (1 / size, 1.0) for token in range(size)}, vocab_size=size)
    NGram.from_tables(tables, metadata={"end_of_text": size - 1}).save(tmp_path / "lm.ngram")
    run(monkeypatch, tmp_path / "lm.ngram", tmp_path / "a", "--tokens", "200k")
    shard = np.load(tmp_path / "a" / "shard-00000.npy")
    assert shard.dtype == np.uint32 and shard[-1] == size - 1 and (np.bincount(shard >> 15) > 0).all()
    assert shard.max() < size


def test_a_folder_made_otherwise_is_refused(monkeypatch, saved, tmp_path):
    run(monkeypatch, saved, tmp_path / "a", "--tokens", "1k")
    with refused(SystemExit, "corpus.json", "'seed'", "2", "1"):
        run(monkeypatch, saved, tmp_path / "a", "--tokens", "1k", "--seed", "2")
    np.save(tmp_path / "a" / "shard-00000.npy", np.zeros(5, np.uint16))
    with refused(SystemExit, "shard-00000.npy", "1000", "uint16", "5"):
        run(monkeypatch, saved, tmp_path / "a", "--tokens", "1k")
    (tmp_path / "a" / "shard-00000.npy").write_bytes(b"")
    refuses(SystemExit, lambda: run(monkeypatch, saved, tmp_path / "a", "--tokens", "1k"), "shard-00000.npy")


def test_a_model_without_end_of_text_is_refused(monkeypatch, tmp_path):
    example.model().save(tmp_path / "lm.ngram")
    refuses(SystemExit, lambda: run(monkeypatch, tmp_path / "lm.ngram", tmp_path / "a", "--tokens", "1k"), "metadata")
