"""Heads that share keys: passes over drafts beside transformers' own attention, which copies keys for every head."""

import numpy as np
import pytest
import torch
from support.tiny_transformers import V, build, shared
from transformers import AttentionInterface
from transformers.integrations import sdpa_attention

from rescore.decode.models import grouped_attention
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.target import Block

FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gemma3", "olmo2", "phi3", "granite", "cohere", "mellum"]
MOST = 2 * 2 * 8  # tokens of a pass: two planes of two heads of width 8


@pytest.fixture
def copies(monkeypatch):
    """How often transformers copied keys or values for the heads of a group."""
    found, repeat = [], sdpa_attention.repeat_kv
    monkeypatch.setattr(sdpa_attention, "repeat_kv", lambda *given: found.append(given[1]) or repeat(*given))
    return found


def tree(rows: int, length: int, starts: list[int]) -> Block:
    """Random trees behind texts of different lengths."""
    draw = np.random.default_rng(length)
    ancestors, depths = np.zeros((rows, length, length), bool), np.zeros((rows, length), np.int64)
    for row in range(rows):
        for node in range(length):
            if node:
                parent = draw.integers(0, node)
                ancestors[row, node], depths[row, node] = ancestors[row, parent], depths[row, parent] + 1
            ancestors[row, node, node] = True
    ids = torch.from_numpy(draw.integers(3, V, (rows, length)))
    seen = {"depths": torch.from_numpy(depths), "ancestors": torch.from_numpy(ancestors)}
    return Block(ids=ids, start=torch.tensor(starts), end=max(starts) + length, **seen)


def logits(target, prompts, block):
    with torch.inference_mode():
        cache, ends = target.open([np.array(prompt) for prompt in prompts], 1, 64)
        target.read(Block.of_texts(ends, [0] * len(ends), target.device), cache)
        return target.logits(target.read(block, cache))


@pytest.mark.parametrize("family", FAMILIES)
def test_trees_are_read_as_with_keys_of_every_head(family, copies, monkeypatch):
    prompts = [[*range(3, 14)], [*range(20, 25)]]
    target = CausalLMTarget(shared(family))
    target.open([np.array([3])], 1, 64)  # where the model is tried out
    for length in (2, 9, MOST):
        block = tree(2, length, [10, 4])
        copies.clear()
        found = logits(target, prompts, block)
        assert not copies
        with monkeypatch.context() as patch:
            patch.setattr("rescore.decode.models.narrow_linear.grouping", lambda part: {})
            expected = logits(target, prompts, block)
        assert copies
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_what_attention_returns_may_lie_in_memory_by_position(monkeypatch):
    """As on GPUs."""
    attend, target = torch.nn.functional.scaled_dot_product_attention, CausalLMTarget(shared("llama"))
    block, prompts = tree(2, 5, [10, 4]), [[*range(3, 14)], [*range(20, 25)]]
    expected = logits(target, prompts, block)
    monkeypatch.setattr(
        grouped_attention.functional,
        "scaled_dot_product_attention",
        lambda *given, **named: attend(*given, **named).transpose(1, 2).contiguous().transpose(1, 2),
    )
    assert torch.equal(logits(target, prompts, block), expected)


def test_a_mask_is_laid_out_once_for_all_layers_of_a_kind(monkeypatch):
    masks = []
    attend = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        grouped_attention.functional,
        "scaled_dot_product_attention",
        lambda *given, **named: given[3:] and masks.append(given[3]) or attend(*given, **named),
    )
    both = {"layer_types": ["sliding_attention", "full_attention"] * 3}
    for family, kinds, layers in (("llama", 1, {}), ("gemma3", 2, both)):
        target = CausalLMTarget(build(family, num_hidden_layers=6, **layers))
        logits(target, [[3, 4, 5, 6, 7]], tree(1, 5, [4]))
        assert len({id(mask) for mask in masks[-6:]}) == kinds
        assert all(mask.shape[2] == 2 * 5 for mask in masks[-6:])


def test_wide_passes_and_other_attention_stay_transformers(copies):
    target = CausalLMTarget(shared("llama"))
    target.open([np.array([3])], 1, 64)  # where the model is tried out
    copies.clear()
    logits(target, [[3, 4, 5]], tree(1, MOST + 1, [2]))
    assert copies
    eager = shared("llama-eager")
    assert not any(grouped_attention.grouping(part) for part in (*eager.modules(), *shared("gpt-neox").modules()))


def test_the_model_keeps_its_own_configuration():
    model = build("llama")
    target = CausalLMTarget(model)
    logits(target, [[3, 4, 5]], tree(1, 4, [2]))
    attention = target.parts[0].layers[0].self_attn
    assert model.config._attn_implementation == model.model.layers[0].self_attn.config._attn_implementation == "sdpa"
    assert attention.config._attn_implementation in AttentionInterface()
    model.config.hidden_act = "changed"
    assert attention.config.hidden_act == "changed" and attention.config.to_dict() == model.config.to_dict()


def test_attention_that_asks_for_sdpa_by_name_is_left_alone():
    model = build("llama")
    kind = type(model.model.layers[0].self_attn)

    class Asking(kind):
        def forward(self, *args, **kwargs):
            assert self.config._attn_implementation == "sdpa"
            return super().forward(*args, get_interface=None, **kwargs)

    model.model.layers[0].self_attn.__class__ = Asking
    assert [bool(grouped_attention.grouping(layer.self_attn)) for layer in model.model.layers] == [False, True]
