"""Training mask tokens: groups of a pass against plain reading of their positions; what is learnt; resuming."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from support.bita import tokens_for
from support.refusals import refuses
from support.tiny_transformers import V, build, shared

from rescore.decode.models.bita import BitaTarget, BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.target import Block
from rescore.decode.train import bita_training
from rescore.decode.train.training_run import best_of

OPTIONS = bita_training.BitaOptions(texts=4, groups=8, rounds=6, rate=0.02, every=30)


def texts(count: int = 90, length: int = 14, answer: int = 4) -> list[bita_training.TaughtText]:
    """Texts in which four tokens of five are equal, which mask tokens can learn on a model of random weights."""
    draw = np.random.default_rng(5)
    rows = np.where(draw.random((count, length)) < 0.8, 7, draw.integers(0, V, (count, length)))
    return [bita_training.TaughtText(number=i, ids=row[: length - i % 3], answer=answer) for i, row in enumerate(rows)]


BEHIND = [np.array([2, 3, 7, 10]), np.array([4, 6])]


def two_texts() -> bita_training.Groups:
    draw = np.random.default_rng(1)
    pair = [bita_training.TaughtText(number=i, ids=draw.integers(0, V, n), answer=3) for i, n in enumerate((12, 9))]
    return bita_training.Groups.behind(pair, BEHIND, 3)


@pytest.mark.parametrize("name", ["llama-eager", "gpt2", "granite", "deepseek-v3", "gpt-neo", "gemma3"])
def test_groups_see_what_drafting_will_see(name):
    """Which tests of models compare with plain reading."""
    model, tokens, groups = shared(name), tokens_for(name), two_texts()
    target, drafts = CausalLMTarget(model), BitaTarget(model, tokens)
    with torch.no_grad():
        logits = target.logits(bita_training.group_states(target, tokens, groups))
        for row, text in enumerate(groups.texts):
            for at, got in zip(groups.at[row].tolist(), logits[row]):
                cache, firsts = drafts.open([text[: at + 1]], 1, 16)
                hidden = drafts.read(Block.of_texts(firsts, [0], drafts.device), cache)
                torch.testing.assert_close(got, drafts.ahead(hidden[0, -1]), atol=2e-5, rtol=0)


def test_what_masks_should_predict():
    groups = two_texts()
    for text, places, truth in zip(groups.texts, BEHIND, groups.truth):
        wanted = [[*text[at + 2 : at + 5], -1, -1, -1][:3] for at in places]
        assert truth[: len(wanted)].tolist() == wanted
    assert (groups.truth[1, 2:] == -1).all(), "a text with fewer groups teaches nothing with the rest"


def test_texts_of_a_store():
    shard = {
        "numbers": np.array([7, 8]),
        "tokens": np.array([1, 2, 3, 4], np.int32),
        "offsets": np.array([0, 3, 4]),
        "prompt_tokens": np.array([9, 8, 7], np.int32),
        "prompt_offsets": np.array([0, 2, 3]),
    }
    (only,) = bita_training.taught_texts([shard])  # an answer of one token has no token after it
    assert (only.number, only.ids.tolist(), only.answer) == (7, [9, 8, 1, 2, 3], 2)
    assert only.positions().tolist() == [1, 2]  # the token after the next one exists


def training(folder, **changed) -> bita_training.BitaTraining:
    options = dataclasses.replace(OPTIONS, **changed)
    target = CausalLMTarget(build("llama"))
    return bita_training.BitaTraining(target, BitaTokens.new(target, masks=2, prompts=4), texts(), options, folder, {})


def run(one: bita_training.BitaTraining, stop: int | None = None) -> list:
    """What is reported, of a run that is interrupted behind the step `stop`."""

    def advance(done: int, of: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    seen: list = []
    one.run(seen.append, advance)
    return seen


def test_masks_learn_and_the_model_does_not(tmp_path):
    one = training(tmp_path)
    weights = copy.deepcopy(one.target.model.state_dict())
    seen = run(one)
    assert all(before < 0.2 and after > 0.6 for before, after in zip(seen[0].recall[1], seen[-1].recall[1]))
    assert best_of(tmp_path / "curve.jsonl")["loss"][0] < seen[0].loss[0] - 0.5
    torch.testing.assert_close(one.target.model.state_dict(), weights, atol=0, rtol=0)
    assert all(weight.grad is None and not weight.requires_grad for weight in one.target.model.parameters())
    assert all(weight.grad is not None for weight in one.tokens.parameters())
    held = {text.number for text in one.held}
    assert held == {0, 41, 82} and not held & {text.number for text in one.train}


def test_an_interrupted_run_resumes_bit_for_bit(tmp_path):
    whole = training(tmp_path / "whole", rounds=3)
    wanted = run(whole)
    with pytest.raises(KeyboardInterrupt):
        run(training(tmp_path / "cut", rounds=3), stop=40)
    again = training(tmp_path / "cut", rounds=3)
    seen = run(again)
    assert [one.loss for one in seen] == [one.loss for one in wanted[-len(seen) :]]
    torch.testing.assert_close(again.tokens.state_dict(), whole.tokens.state_dict(), atol=0, rtol=0)
    refuses(ValueError, lambda: run(training(tmp_path / "cut", rounds=3, rate=0.1)), "rate", "0.1", "0.02")


def test_too_few_texts_are_refused(tmp_path):
    target = CausalLMTarget(shared("llama"))
    few, tokens = texts(2)[1:], BitaTokens.new(target)
    refuses(ValueError, lambda: bita_training.BitaTraining(target, tokens, few, OPTIONS, tmp_path, {}), "41", "0")
