"""Mask tokens after every node, against the family's own code on one group alone; the text does not attend to them."""

import numpy as np
import pytest
import torch
from support.bita import plain_reading, target_of, tokens_for
from support.blocks import chain, path_tokens, tree_block
from support.steps import step_of
from support.tiny_transformers import V, shared

from rescore.decode.models.bita import BitaHeads
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.slot_cache import SlotCache
from rescore.decode.models.target import Block
from rescore.lattice.tree import TokenTree

PLAIN = ["llama-eager", "gpt2", "cohere", "deepseek-v3"]
WINDOWED = ["gpt-neo", "gemma3"]
TREE = TokenTree.from_drafts(np.array([[3, 4, 5], [3, 6, -1], [7, 4, 8]]))
TEXT = [5, 9, 2, 11, 30, 4, 8]


pytestmark = pytest.mark.usefixtures("no_gradients")


def close(got, expected) -> None:
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name, size", [*((name, (3, 4)) for name in PLAIN), ("llama", (1, 0)), ("llama", (5, 16))])
def test_masks_behind_every_node_of_a_tree(name, size):
    """Of any number of masks and prompts."""
    target, tokens = target_of(name, *size), tokens_for(name, *size)
    cache, _ = target.open([np.array(TEXT), np.array(TEXT[:4])], 1, 8)
    target.read(Block.of_texts([np.array(TEXT[:-1]), np.array(TEXT[:3])], [0, 0], target.device), cache)
    hidden = target.read(tree_block(TREE, TEXT[-1], [len(TEXT) - 1, 3]), cache)
    assert hidden.shape == (2, 1 + TREE.size, (1 + size[0]) * 32)
    for row, before in enumerate((TEXT[:-1], TEXT[:3])):
        for node in range(-1, TREE.size):
            text = [*before, TEXT[-1], *path_tokens(TREE, node)]
            close(target.ahead(hidden[row, 1 + node]), plain_reading(target.model, tokens, text))


@pytest.mark.parametrize("name", [*PLAIN, *WINDOWED])
def test_the_text_does_not_see_them(name):
    plain, target = CausalLMTarget(shared(name)), target_of(name)
    for one in (caches := [plain.open([np.array(TEXT)], 1, 8)[0], target.open([np.array(TEXT)], 1, 8)[0]]):
        assert isinstance(one, SlotCache)
    for block in (chain([TEXT], [0]), tree_block(TREE, 7, [len(TEXT)]), chain([[4, 5]], [len(TEXT) + 1])):
        want, got = (one.logits(one.read(block, cache)) for one, cache in zip((plain, target), caches))
        close(got, want)


def test_as_heads_they_give_the_lattice_behind_the_last_token():
    target, tokens = target_of("llama"), tokens_for("llama")
    cache, firsts = target.open([np.array(TEXT), np.array(TEXT[:5])], 1, 8)
    hidden = target.read(Block.of_texts(firsts, [0, 0], target.device), cache)
    last = torch.stack((hidden[0, 6], hidden[1, 4]))
    step = step_of([[1]] * 2, states=lambda: last[:, None])
    heads = BitaHeads(target)
    got = heads.open(2).logits(step)
    assert heads.slots == 3 and got.shape == (2, 3, V)
    for logits, text in zip(got, (TEXT, TEXT[:5])):
        close(logits, plain_reading(target.model, tokens, text))


def test_masks_stay_within_the_context():
    target, text = target_of("gpt2"), np.arange(64)[None] % V  # 64 learned positions
    cache, _ = target.open(text, 1, 64)
    assert target.read(chain(text, [0]), cache).isfinite().all()
