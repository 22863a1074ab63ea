"""The proposer, called as vLLM 0.32 calls it: rows of the batch arrive, move, wait and leave."""

import json
import logging
from importlib import metadata
from types import SimpleNamespace

import numpy as np
import pytest
from support.refusals import assert_named, refused, refuses

from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.engines.plugin import VARIABLE, EmptyOnError, EngineOptions
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.decode.engines.vllm import Proposer
from rescore.lattice.extras import check_version
from rescore.lm.model.ngram import NGram

V, LONGEST = 60, 200


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.32.0")


def config(ends=0, additional=None, most=6, rows=4):
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=most),
        model_config=SimpleNamespace(
            max_model_len=LONGEST, get_vocab_size=lambda: V, hf_text_config=SimpleNamespace(eos_token_id=ends)
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=rows),
        additional_config={"rescore": {"cost": 0.05, **(additional or {})}},
    )


def text_of(seed, n=180):
    draw = np.random.default_rng(seed)
    phrase = draw.integers(1, V, 25)
    return np.concatenate([phrase if draw.random() < 0.8 else draw.integers(1, V, 25) for _ in range(8)])[:n].astype(
        np.int32
    )


class Batch:
    """vLLM's arrays: one row per running request."""

    def __init__(self):
        self.tokens = np.full((8, LONGEST), -1, np.int32)  # the rest of a row is left over from other texts
        self.sizes = np.zeros(8, np.int32)

    def put(self, row, text, size):
        self.tokens[row, : len(text)] = text
        self.sizes[row] = size


def alone(text, prompt):
    drafter = TextDrafter(vocab_size=V, cost=0.05, end_of_text=0)
    drafter.chains([DraftRow.of_tokens(text[:prompt])], 6)
    return drafter.chains([DraftRow.of_tokens(text)], 6)[0].tolist()


def test_chains_follow_requests_through_the_batch():
    """Requests arrive, swap rows, are preempted and resume; drafts equal those of a drafter with one request."""
    proposer, batch, draw = Proposer(config()), Batch(), np.random.default_rng(0)
    texts, sizes = [text_of(seed) for seed in range(6)], [60] * 6
    for _ in range(60):
        rows = draw.permutation(6)[: draw.integers(1, 5)].tolist()
        for place, request in enumerate(rows):
            batch.put(place, texts[request], sizes[request])
        drafts = proposer.propose([[1]] * len(rows), batch.sizes, batch.tokens)
        assert drafts == [alone(texts[request][: sizes[request]], 60) for request in rows]
        for request in rows:
            sizes[request] = min(sizes[request] + int(draw.integers(1, 4)), 170)
    assert any(drafts) and proposer.drafter.drafter.texts <= 8  # twice the rows that vLLM runs


def test_rows_that_are_not_drafted():
    proposer, batch, text = Proposer(config()), Batch(), text_of(1, LONGEST)
    for row, size in enumerate((100, 100, LONGEST, LONGEST - 1, LONGEST - 3)):
        batch.put(row, text, size)
    drafts = proposer.propose([[1], [], [1], [1], [1]], batch.sizes, batch.tokens)
    assert drafts[1] == drafts[2] == drafts[3] == []  # a prompt that is half read, and texts without room for more
    assert len(drafts[4]) <= 2
    assert proposer.propose([], batch.sizes, batch.tokens) == []


def test_nothing_is_left_of_requests_that_ended():
    proposer, batch = Proposer(config(additional={"memory": True})), Batch()
    for number in range(30):
        text = text_of(number)
        text[99] = 0  # the end of text
        for size in (80, 90, 100):
            batch.put(0, text, size)
            proposer.propose([[1]], batch.sizes, batch.tokens)
    drafter = proposer.drafter.drafter
    assert drafter.texts == 0 and drafter.tokens == 0 and len(drafter.memory.texts()) == 30


def test_tokens_that_the_model_does_not_have_cost_their_row_alone(caplog):
    proposer, batch = Proposer(config()), Batch()
    bad = text_of(1)
    bad[5] = V
    for row, text in enumerate((text_of(0), bad, text_of(2))):
        batch.put(row, text, 120)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            drafts = proposer.propose([[1]] * 3, batch.sizes, batch.tokens)
    assert drafts == [alone(text_of(0)[:120], 120), [], alone(text_of(2)[:120], 120)]
    assert len(caplog.records) == 1
    assert_named(caplog.text, ["0..59"])


def test_options(tmp_path, monkeypatch):
    NGram.uniform(V).save(tmp_path / "lm.ngram")
    memory = TextMemory(vocab_size=V, end_of_text=0)
    memory.add([1, 2, 3])
    memory.save(tmp_path / "texts.npy")
    options = {"lm": str(tmp_path / "lm.ngram"), "memory": str(tmp_path / "texts.npy"), "tokens": 500, "threads": 2}
    drafter = Proposer(config([0, 7], options)).drafter.drafter
    assert drafter.model.vocab_size == V and drafter.memory.most == 500 and drafter.threads == 2
    assert [text.tolist() for text in drafter.memory.texts()] == [[1, 2, 3, 0]]
    monkeypatch.setenv(VARIABLE, json.dumps({"cost": 0.5}))
    assert EngineOptions.of({}) == EngineOptions.of(None) == EngineOptions(cost=0.5)
    assert EngineOptions.of({"rescore": {}}) == EngineOptions()


@pytest.mark.parametrize(
    "given, message",
    [
        ({"model": "x"}, ["additional_config['rescore']", "'model'"]),
        ({"lm": 5}, ["lm", "5"]),
        ({"threads": True}, ["threads", "True"]),
        ({"cost": 7}, ["cost", "0..1", "7"]),
        ({"memory": "none.npy"}, ["none.npy", "--memory"]),
        ({"lm": "none.ngram"}, ["none.ngram"]),
    ],
)
def test_options_that_are_refused(given, message):
    refuses((ValueError, OSError), lambda: Proposer(config(additional=given)), *message)
    refuses(ValueError, lambda: Proposer(config(None, {"memory": True})), "memory", "eos_token_id")


def test_trees_that_cannot_be_drafted():
    forgiving = EmptyOnError(TextDrafter(vocab_size=5))
    trees = forgiving.trees([DraftRow.of_tokens([1, 2, 1]), DraftRow.of_tokens([9])], 4)
    assert trees[0].size == 4 and trees[1].size == 0


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "1.0"])
def test_other_versions_are_refused(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    refuses(ImportError, lambda: Proposer(config()), "0.32", "0.34", version, "'vllm")


@pytest.mark.parametrize(
    "found, wanted", [("0.3.36", True), ("0.3.36+cu124", True), ("0.3.40rc1", True), ("0.3.9", False)]
)
def test_versions_are_compared_as_numbers(monkeypatch, found, wanted):
    monkeypatch.setattr(metadata, "version", lambda name: found)
    if wanted:
        check_version(("llama-cpp-python",), "0.3.36", "0.4", extra="llama-cpp")
    else:
        with pytest.raises(ImportError):
            check_version(("llama-cpp-python",), "0.3.36", "0.4", extra="llama-cpp")


def test_an_environment_that_is_no_json(monkeypatch):
    monkeypatch.setenv(VARIABLE, "lm=x")
    with refused(ValueError, "RESCORE_OPTIONS"):
        EngineOptions.of_environment()
    monkeypatch.setenv(VARIABLE, "[1]")
    with refused(ValueError, "RESCORE_OPTIONS", "list"):
        EngineOptions.of_environment()


def test_no_vllm(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    refuses(ImportError, lambda: Proposer(config()), "vllm", "0.32")
