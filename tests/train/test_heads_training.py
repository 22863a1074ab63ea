"""Training on stored states: what is learnt, what is measured, exact resuming, and the distillation loss."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.tiny_disk import tiny_disk

from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.train import heads_training
from rescore.decode.train.heads_training import Distillation, HeadsTraining, TrainingOptions, taught
from rescore.decode.train.lessons import Lessons
from rescore.decode.train.training_run import best_of

WIDTH, V, SLOTS = 8, 24, 3
TABLE = torch.randn(V, WIDTH, generator=torch.Generator().manual_seed(1))
NEXT = np.random.default_rng(2).permutation(V)
OPTIONS = TrainingOptions(batch=64, rounds=16, every=20, rate=0.05)


def shards(texts: int = 90, length: int = 12) -> list[dict]:
    """Texts in which every token has one successor, one time in five another; states are noise, so only the root token
    is informative.
    """
    draw = np.random.default_rng(5)
    rows = np.empty((texts, length), np.int32)
    rows[:, 0] = draw.integers(0, V, texts)
    for i in range(1, length):
        rows[:, i] = np.where(draw.random(texts) < 0.8, NEXT[rows[:, i - 1]], draw.integers(0, V, texts))
    n = texts * length
    usual = NEXT[np.concatenate((rows[:, :1], rows[:, :-1]), axis=1)].astype(np.int32)  # any before the first one
    return [
        {
            "numbers": np.arange(texts),
            "tokens": rows.ravel(),
            "offsets": np.arange(0, n + 1, length),
            "hidden": draw.normal(size=(n, WIDTH)).astype(np.float16),
            "top_ids": np.stack((usual, (usual + 1) % V), axis=-1).reshape(n, 2),
            "top_logp": np.log(np.tile([[0.8, 0.2]], (n, 1))).astype(np.float16),
        }
    ]


def training(folder, **changed) -> HeadsTraining:
    torch.manual_seed(0)
    heads = ConditionedHeads(slots=SLOTS, layers=1, embedding=TABLE, table=TABLE, vocabulary=torch.arange(V))
    lessons = Lessons(shards(), SLOTS, held_out=6)
    return HeadsTraining(heads, lessons, dataclasses.replace(OPTIONS, **changed), folder, {"base_model": "some"})


def run(one: HeadsTraining, stop: int | None = None) -> list:
    """What is reported, of a run that is interrupted behind the step `stop`."""

    def advance(done, of):
        if done == stop:
            raise KeyboardInterrupt

    seen = []
    one.run(seen.append, advance)
    return seen


@torch.no_grad()
def recall(heads: ConditionedHeads, k: int) -> list[float]:
    """Recall@k of every slot on the held-out texts, counted text by text."""
    (shard,) = shards()
    hits = [[] for _ in range(SLOTS)]
    for text, (start, end) in enumerate(itertools.pairwise(shard["offsets"])):
        for i in range(start, end - 1) if text % 6 == 0 else ():
            state = torch.from_numpy(shard["hidden"][i : i + 1].astype(np.float32))
            logits = heads.of_hidden(state, torch.from_numpy(shard["tokens"][i : i + 1].astype(np.int64)))[0]
            for t in range(SLOTS):
                if i + 1 + t < end:
                    hits[t].append(shard["tokens"][i + 1 + t] in logits[t].topk(k).indices)
    return [float(np.mean(one)) for one in hits]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run that ended, and its evaluations."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(training(folder))


def test_heads_learn_what_the_root_token_tells(whole):
    """And the recall measured is that of the saved heads on the held-out texts."""
    folder, seen = whole
    assert seen[-1].recall[1][0] > 0.7 > 0.2 > seen[0].recall[1][0]
    assert seen[-1].loss[0] < 1.2 < 3 < seen[0].loss[0]
    best = best_of(folder / "curve.jsonl")
    assert best["loss"] == min((one.loss for one in seen), key=np.mean) and best["step"] > 0
    heads = ConditionedHeads.load(folder / "heads", embedding=TABLE, table=TABLE)
    for k in (1, 4):
        np.testing.assert_allclose(best["recall"][str(k)], recall(heads, k), atol=0.01)  # saved in float16
    told = json.loads((folder / "heads" / "config.json").read_text())
    assert told["base_model"] == "some" and told["training"]["step"] == best["step"]


@pytest.mark.parametrize("stop", [1, 45])
def test_a_stopped_run_ends_as_one_that_was_not(whole, tmp_path, stop):
    with pytest.raises(KeyboardInterrupt):
        run(training(tmp_path), stop)
    with open(tmp_path / "curve.jsonl", "a") as curve:
        curve.write('{"step": 60, "los')  # as a crash cuts a line
    run(training(tmp_path))
    curves = [
        [(line["step"], line["loss"], line["best"]) for line in map(json.loads, curve.read_text().splitlines())]
        for curve in (folder / "curve.jsonl" for folder in (whole[0], tmp_path))
    ]
    assert curves[0] == curves[1] and len(curves[0]) == len(whole[1])
    files = [folder / "heads" / "heads.safetensors" for folder in (whole[0], tmp_path)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_state_that_is_damaged_or_of_other_options_is_refused(tmp_path):
    run(training(tmp_path, rounds=1))
    refuses(ValueError, lambda: run(training(tmp_path, rounds=1, rate=0.1)), "state.pt", "0.1", "0.05")
    state = tmp_path / "state.pt"
    for damaged in (state.read_bytes()[:-200], b"", b"text" * 99):
        state.write_bytes(damaged)
        refuses(ValueError, lambda: run(training(tmp_path, rounds=1)), "state.pt")
    torch.save({"step": 1}, state)
    refuses(ValueError, lambda: run(training(tmp_path, rounds=1)), "state.pt", "'options'")


def test_a_full_disk_is_named_and_the_run_resumes_with_room(tmp_path):
    whole = run(training(tmp_path / "whole", rounds=2))
    with tiny_disk(tmp_path / "disk", 16_384) as disk:
        refuses(OSError, lambda: run(training(disk, rounds=2)), "'")
        shutil.copytree(disk, tmp_path / "parts")
    parts = run(training(tmp_path / "parts", rounds=2))
    assert [(one.step, one.loss) for one in parts] == [(one.step, one.loss) for one in whole][-len(parts) :]


def test_training_ends_when_nothing_gets_better(tmp_path):
    """Patience counts only in the second half of the steps."""
    seen = run(training(tmp_path, rate=1e-12, patience=2, rounds=50))
    assert [one.best for one in seen[-2:]] == [False, False] and seen[-1].steps / 2 < seen[-1].step < seen[-1].steps


@pytest.mark.parametrize("chunk", [1, 4, 512])
def test_loss_and_gradient_are_those_of_torch(monkeypatch, chunk):
    """Over all logits at once."""
    torch.manual_seed(3)
    monkeypatch.setattr(heads_training, "CHUNK", chunk)
    states, table = torch.randn(9, 6, requires_grad=True), torch.randn(13, 6)
    columns = torch.stack([torch.randperm(13)[:3] for _ in range(9)])
    probs = torch.rand(9, 3)
    probs[4] = 0  # taught nothing
    probs /= probs.sum(dim=1, keepdim=True).clamp(min=1e-9)
    wanted = torch.zeros(9, 13).scatter_(1, columns, probs)
    told = torch.arange(9) != 4
    expected = torch.nn.functional.cross_entropy((states @ table.T)[told], wanted[told])
    (gradient,) = torch.autograd.grad(expected, states)
    loss = Distillation.apply(states, table, columns, probs)
    (own,) = torch.autograd.grad(2 * loss, states)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(own, 2 * gradient)


def test_taught_probabilities_are_of_the_draft_vocabulary_at_the_temperature():
    """Of 0.5, 0.3, 0.2 the token 8 is outside: 0.5 and 0.2 at temperature 1/2 are as 25 to 4."""
    columns = torch.full((10,), -1)
    columns[[2, 5, 9]] = torch.arange(3)
    ids = torch.tensor([[5, 8, 9], [8, 8, 8], [-1, -1, -1]])
    logp = torch.log(torch.tensor([[0.5, 0.3, 0.2]] * 3))
    at, probs = taught(ids, logp, columns, 0.5)
    assert at[0].tolist() == [1, 0, 2]
    np.testing.assert_allclose(probs, [[25 / 29, 0, 4 / 29], [0, 0, 0], [0, 0, 0]], rtol=1e-6)
