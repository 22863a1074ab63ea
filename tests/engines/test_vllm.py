"""The proposer, called as vLLM 0.32 calls it: rows of the batch arrive, move, wait and leave."""

import json
import logging
from contextlib import nullcontext
from importlib import metadata
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from support.refusals import assert_named, refuses

from rescore import NGram, TextDrafter, TextMemory
from rescore.decode.engines.plugin import VARIABLE, EngineOptions
from rescore.decode.engines.text_drafter import DraftRow
from rescore.decode.engines.vllm import Proposer
from rescore.lattice.extras import check_version

V, LONGEST = 60, 200


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.32.0")


def config(ends=0, additional=None):
    text = SimpleNamespace(eos_token_id=ends)
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=6),
        model_config=SimpleNamespace(max_model_len=LONGEST, get_vocab_size=lambda: V, hf_text_config=text),
        scheduler_config=SimpleNamespace(max_num_seqs=4),
        device_config=SimpleNamespace(device_type="cpu"),
        additional_config={"rescore": {"cost": 0.05, **(additional or {})}},
    )


def text_of(seed, n=180):
    draw = np.random.default_rng(seed)
    phrase = draw.integers(1, V, 25)
    parts = [phrase if draw.random() < 0.8 else draw.integers(1, V, 25) for _ in range(8)]
    return np.concatenate(parts)[:n].astype(np.int32)


class Engine:
    """vLLM's arrays, one row per running request, and their proposer."""

    def __init__(self, **options):
        self.proposer = Proposer(config(**options))
        self.drafter = self.proposer.drafter.drafter
        self.tokens = np.full((8, LONGEST), -1, np.int32)  # the rest of a row is left over from other texts
        self.sizes = np.zeros(8, np.int32)

    def drafts(self, rows, sampled=None):
        """For the first tokens of texts, (text, size) each."""
        for row, (text, size) in enumerate(rows):
            self.tokens[row, : len(text)], self.sizes[row] = text, size
        return self.proposer.propose(sampled or [[1]] * len(rows), self.sizes, self.tokens)


def alone(text, prompt):
    drafter = TextDrafter(vocab_size=V, cost=0.05, end_of_text=0)
    drafter.chains([DraftRow.of_tokens(text[:prompt])], 6)
    return drafter.chains([DraftRow.of_tokens(text)], 6)[0].tolist()


def test_chains_follow_requests_through_the_batch():
    """Requests arrive, swap rows, are preempted and resume; drafts equal those of a drafter with one request."""
    engine, draw = Engine(), np.random.default_rng(0)
    texts, sizes = [text_of(seed) for seed in range(6)], [60] * 6
    for _ in range(60):
        rows = draw.permutation(6)[: draw.integers(1, 5)].tolist()
        drafts = engine.drafts([(texts[request], sizes[request]) for request in rows])
        assert drafts == [alone(texts[request][: sizes[request]], 60) for request in rows]
        for request in rows:
            sizes[request] = min(sizes[request] + int(draw.integers(1, 4)), 170)
    assert any(drafts) and engine.drafter.texts <= 8  # twice the rows that vLLM runs


def test_rows_that_are_not_drafted():
    engine, text = Engine(), text_of(1, LONGEST)
    rows = [(text, size) for size in (100, 100, LONGEST, LONGEST - 1, LONGEST - 3)]
    drafts = engine.drafts(rows, [[1], [], [1], [1], [1]])
    assert drafts[1] == drafts[2] == drafts[3] == []  # a prompt that is half read, and texts without room for more
    assert len(drafts[4]) <= 2
    assert engine.drafts([]) == []


def test_nothing_is_left_of_requests_that_ended():
    engine = Engine(additional={"memory": True})
    for number in range(30):
        text = text_of(number)
        text[99] = 0  # the end of text
        for size in (80, 90, 100):
            engine.drafts([(text, size)])
    assert engine.drafter.texts == engine.drafter.tokens == 0 and len(engine.drafter.memory.texts()) == 30


def test_tokens_that_the_model_does_not_have_cost_their_row_alone(caplog):
    engine, (first, bad, last) = Engine(), map(text_of, range(3))
    bad[5] = V
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            drafts = engine.drafts([(text, 120) for text in (first, bad, last)])
    assert drafts == [alone(first[:120], 120), [], alone(last[:120], 120)] and len(caplog.records) == 1
    assert_named(caplog.text, ["0..59"])
    trees = engine.proposer.drafter.trees([DraftRow.of_tokens([1, 2, 1]), DraftRow.of_tokens([V])], 4)
    assert [tree.size for tree in trees] == [4, 0]


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


def test_other_versions_or_none_are_refused(monkeypatch):
    for version in ("0.31.9", "0.34.0", "1.0"):
        monkeypatch.setattr(metadata, "version", lambda name, version=version: version)
        refuses(ImportError, lambda: Proposer(config()), "0.32", "0.34", version, "'vllm")
    monkeypatch.setattr(metadata, "version", Mock(side_effect=metadata.PackageNotFoundError("vllm")))
    refuses(ImportError, lambda: Proposer(config()), "vllm", "0.32")


@pytest.mark.parametrize("found", ["0.3.36", "0.3.36+cu124", "0.3.40rc1", "0.3.9"])
def test_versions_are_compared_as_numbers(monkeypatch, found):
    monkeypatch.setattr(metadata, "version", lambda name: found)
    with pytest.raises(ImportError) if found == "0.3.9" else nullcontext():
        check_version(("llama-cpp-python",), "0.3.36", "0.4", extra="llama-cpp")


@pytest.mark.parametrize("text, named", [("lm=x", []), ("[1]", ["list"])])
def test_an_environment_that_is_no_json(monkeypatch, text, named):
    monkeypatch.setenv(VARIABLE, text)
    refuses(ValueError, EngineOptions.of_environment, "RESCORE_OPTIONS", *named)
