"""A model's own answers and states, against generating each text alone in transformers."""

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.tiny_transformers import V, shared

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.training.own_texts import States, TextOptions, own_texts, read_states
from rescore.decode.verify.sampling import Sampling

END, MOST = (2, 5), 12


def prompts(count: int, seed: int = 0) -> list[Prompt]:
    draw = np.random.default_rng(seed)
    return [
        Prompt(
            task="any",
            number=number,
            tokens=draw.integers(3, V, draw.integers(1, 9)).astype(np.int32),
            reference=draw.integers(3, V, draw.integers(1, 7)).astype(np.int32),
        )
        for number in range(count)
    ]


@torch.no_grad()
def reading(model, ids) -> tuple[torch.Tensor, torch.Tensor]:
    """Last hidden states and logits of transformers' own pass over a text."""
    out = model(input_ids=torch.as_tensor(ids, dtype=torch.int64)[None], output_hidden_states=True)
    return out.hidden_states[-1][0], out.logits[0]


@torch.no_grad()
def alone(model, prompt: Prompt, temperature: float) -> list[int]:
    """The text of one prompt, every token from a pass over all of it, drawn by `Sampling`."""
    ids = prompt.tokens.tolist()
    seeds = Sampling(seed=1).seeds(prompt.number, MOST)
    for i in range(MOST):
        logits = reading(model, ids)[1][-1:]
        if temperature:
            ids.append(int(Sampling(temperature=temperature).draw(logits, seeds[i : i + 1])[0]))
        else:
            ids.append(int(logits.argmax()))
        if ids[-1] in END:
            break
    return ids[len(prompt.tokens) :]


def check_states(states: States, model, text: np.ndarray, first: int, rtol: float = 2e-3) -> None:
    """Compares the states after `first` and more tokens of the text with transformers' pass."""
    hidden, logits = reading(model, text[:-1])
    np.testing.assert_allclose(states.hidden, hidden[first - 1 :].numpy(), rtol=rtol, atol=rtol)
    logp, ids = torch.log_softmax(logits[first - 1 :], dim=-1).sort(dim=-1, descending=True)
    k = states.top_ids.shape[1]
    np.testing.assert_allclose(states.top_logp, logp[:, :k].numpy(), rtol=rtol, atol=rtol)
    distinct = (logp[:, :k] - logp[:, 1 : k + 1]).min(dim=1).values > 1e-4
    assert distinct.any()
    assert (states.top_ids == ids[:, :k].numpy())[distinct.numpy()].all()


@pytest.mark.parametrize("name, rows", [("llama", 1), ("llama", 16), ("qwen2", 3), ("gpt2", 3)])
def test_every_text_is_what_its_prompt_gives_alone(name, rows):
    model, asked = shared(name), prompts(11)
    options = TextOptions(temperatures=(0.0, 0.9), max_tokens=MOST, ends=END, top_k=4, rows=rows)
    found = {one.prompt.number: one for one in own_texts(CausalLMTarget(model), asked, options)}
    assert sorted(found) == list(range(11))
    for prompt in asked:
        text = found[prompt.number]
        assert text.tokens.tolist() == alone(model, prompt, (0.0, 0.9)[prompt.number % 2])
        whole = np.concatenate((prompt.tokens, text.tokens))
        check_states(text.states, model, whole, len(prompt.tokens))


def test_no_text_is_begun_when_enough_is_written():
    target, asked = CausalLMTarget(shared("llama")), prompts(200)
    options = TextOptions(temperatures=(0.9,), max_tokens=MOST, ends=END, rows=4, tokens=60)
    lengths = [len(one.tokens) for one in own_texts(target, asked, options)]
    assert 60 <= sum(lengths) < 60 + 4 * MOST


@pytest.mark.parametrize("name", ["qwen2", "gpt2"])
def test_references_are_read_as_they_would_be_alone(name):
    model, asked = shared(name), prompts(7, seed=3)
    found = {one.prompt.number: one for one in read_states(CausalLMTarget(model), asked, top_k=4, rows=3)}
    assert sorted(found) == list(range(7))
    for prompt in asked:
        one = found[prompt.number]
        assert one.tokens.tolist() == prompt.reference.tolist() and len(one.states.hidden) == len(one.tokens)
        check_states(one.states, model, prompt.text, len(prompt.tokens))


def test_states_that_float16_cannot_hold_are_refused():
    refuses(ValueError, lambda: States.of(torch.full((2, 3), 1e5), torch.zeros(2, 7), 4), "float16", "65504")
    refuses(ValueError, lambda: States.of(torch.zeros(2, 3), torch.full((2, 7), torch.nan), 4), "finite")
