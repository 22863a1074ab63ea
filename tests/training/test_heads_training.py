"""Training on stored states: what is learnt, what is measured, and exact resuming."""

import itertools
import json
import shutil

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.tiny_disk import tiny_disk

from rescore.decode.models.conditioned_heads import ConditionedHeads
from rescore.decode.training.heads_training import HeadsTraining, TrainingOptions
from rescore.decode.training.lessons import Lessons
from rescore.decode.training.training_run import best_of

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
    before = np.concatenate((rows[:, :1], rows[:, :-1]), axis=1)  # any token before the first one
    usual = NEXT[before].astype(np.int32)
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
    options = TrainingOptions(**{**{name: getattr(OPTIONS, name) for name in OPTIONS.__slots__}, **changed})
    return HeadsTraining(heads, Lessons(shards(), SLOTS, held_out=6), options, folder, {"base_model": "some"})


def run(one: HeadsTraining) -> list:
    seen = []
    one.run(seen.append, lambda done, of: None)
    return seen


def load(folder) -> ConditionedHeads:
    return ConditionedHeads.load(folder / "heads", embedding=TABLE, table=TABLE)


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


def test_heads_learn_what_the_certain_token_tells(tmp_path):
    seen = run(training(tmp_path))
    assert seen[-1].recall[1][0] > 0.7 > 0.2 > seen[0].recall[1][0]
    assert seen[-1].loss[0] < 1.2 < 3 < seen[0].loss[0]
    best = best_of(tmp_path / "curve.jsonl")
    assert best["loss"] == min((one.loss for one in seen), key=np.mean) and best["step"] > 0


def test_recall_is_that_of_the_saved_heads_on_the_held_out_texts(tmp_path):
    run(training(tmp_path))
    best, heads = best_of(tmp_path / "curve.jsonl"), load(tmp_path)
    for k in (1, 4):
        np.testing.assert_allclose(best["recall"][str(k)], recall(heads, k), atol=0.01)  # saved in float16
    told = json.loads((tmp_path / "heads" / "config.json").read_text())
    assert told["base_model"] == "some" and told["training"]["step"] == best["step"]


class Stopped(Exception):
    pass


@pytest.mark.parametrize("stop", [1, 30, 45, 60])
def test_a_stopped_run_ends_as_one_that_was_not(tmp_path, stop):
    whole, parts = training(tmp_path / "whole"), training(tmp_path / "parts")
    seen = run(whole)

    def advance(done, of):
        if done == stop:
            raise Stopped

    before = []
    with pytest.raises(Stopped):
        parts.run(before.append, advance)
    again = training(tmp_path / "parts")
    run(again)
    for one, other in zip(whole.heads.parameters(), again.heads.parameters()):
        assert torch.equal(one, other)
    curves = [
        [(line["step"], line["loss"], line["best"]) for line in map(json.loads, path.read_text().splitlines())]
        for path in (tmp_path / "whole" / "curve.jsonl", tmp_path / "parts" / "curve.jsonl")
    ]
    assert curves[0] == curves[1] and len(curves[0]) == len(seen)
    weights = [(tmp_path / name / "heads" / "heads.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]


def test_a_run_of_other_options_is_refused(tmp_path):
    run(training(tmp_path, rounds=1))
    refuses(ValueError, lambda: run(training(tmp_path, rounds=1, rate=0.1)), "state.pt", "0.1", "0.05")


@pytest.mark.parametrize("damage", [lambda data: data[:-200], lambda data: b"", lambda data: b"text" * 99])
def test_a_damaged_state_is_named(tmp_path, damage):
    run(training(tmp_path, rounds=1))
    state = tmp_path / "state.pt"
    state.write_bytes(damage(state.read_bytes()))
    refuses(ValueError, lambda: run(training(tmp_path, rounds=1)), "state.pt")
    torch.save({"step": 1}, state)
    refuses(ValueError, lambda: run(training(tmp_path, rounds=1)), "state.pt", "'options'")


def test_a_full_disk_is_named_and_the_run_resumes_with_room(tmp_path):
    whole = run(training(tmp_path / "whole", rounds=2))
    with tiny_disk(tmp_path / "disk", 16_384) as disk:
        refuses(OSError, lambda: run(training(disk, rounds=2)), "'")
        shutil.copytree(disk, tmp_path / "parts")
    with open(tmp_path / "parts" / "curve.jsonl", "a") as curve:
        curve.write('{"step": 0, "los')  # as a disk that is full cuts a line
    parts = run(training(tmp_path / "parts", rounds=2))
    assert [(one.step, one.loss) for one in parts] == [(one.step, one.loss) for one in whole][-len(parts) :]


def test_training_ends_when_nothing_gets_better(tmp_path):
    """Patience counts only in the second half of the steps."""
    seen = run(training(tmp_path, rate=1e-12, patience=2, rounds=50))
    assert [one.best for one in seen[-2:]] == [False, False] and seen[-1].steps / 2 < seen[-1].step < seen[-1].steps
