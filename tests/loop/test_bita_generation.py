"""Generation with mask tokens, across longrope's switch of angles and up to the end of the context: every text is that
of Hugging Face's `generate` for it alone.
"""

from functools import partial

import numpy as np
import pytest
import torch
from support.bita import target_of
from support.generating import PLAIN, Prophet
from support.refusals import refused
from support.scripted import Scripted
from support.tiny_transformers import SWITCH, V, longrope, shared

from rescore import HeadsLattice, Options, Rescorer, TreeDrafter, blended_drafter, generate
from rescore.decode.draft.lattice_drafters import PathDrafter
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.loop.request import Request
from rescore.decode.models.bita import BitaHeads, BitaTarget, BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget

MOST = 30
PROMPTS = [np.random.default_rng(n).integers(3, V, n) for n in (1, 8, SWITCH - 1, SWITCH, SWITCH + 1, 40)]


def plain(model, prompt, most: int = MOST) -> list[int]:
    ids = torch.from_numpy(prompt)[None]
    written = model.generate(ids, attention_mask=torch.ones_like(ids), **PLAIN, max_new_tokens=most)
    return written[0, len(prompt) :].tolist()


def tokens_of(texts) -> list[list[int]]:
    return [one.tokens.tolist() for one in texts]


# The end of the context, next to texts that continue with longer drafts

CHAIN = Scripted(lambda history: [[1, 2, 3, 4, 5, 6]])
TREE = Scripted(lambda history: [[1, 2, 3, 4, 5, 6], [1, 7, 8, -1, -1, -1]])


@pytest.mark.parametrize(("drafter", "layout"), [(CHAIN, TreeLayout()), (TREE, TreeLayout()), (TREE, BatchLayout(2))])
def test_learned_positions_are_not_left(drafter, layout):
    target = CausalLMTarget(shared("gpt2"))
    requests = [Request(prompt=np.arange(60) % V, max_tokens=4), Request(prompt=np.array([5]), max_tokens=20)]
    texts = generate(target, requests, drafter, Options(layout=layout))
    expected = [plain(target.model, one.prompt, one.max_tokens) for one in requests]
    assert target.context == 64 and tokens_of(texts) == expected


@torch.no_grad()
def test_nor_those_of_a_decoder_whose_rows_are_read_in_groups():
    target = EncoderDecoderTarget(shared("bart"))
    prompts = [np.array([7, 7, 1]), np.array([11])]
    texts = []
    for prompt in prompts:
        read, text = partial(target.model, torch.from_numpy(prompt)[None]), [target.model.config.decoder_start_token_id]
        while len(text) < target.context:  # all read anew for each token
            text.append(int(read(decoder_input_ids=torch.tensor([text])).logits[0, -1].argmax()))
        texts.append(text)
    # The first text is drafted rightly, so it is at the end long before the other.
    one, other = texts
    right = {tuple(one[:n]): one[n : n + 6] for n in range(2, len(one))}
    drafter = Scripted(lambda history: [right.get(tuple(history.tolist()), [V - 1] * 6)])
    assert one[:6] != other[:6]
    options = Options(max_tokens=target.context - 1)
    assert tokens_of(generate(target, prompts, drafter, options)) == [text[1:] for text in texts]


def test_the_end_is_that_of_the_positions():
    target = CausalLMTarget(longrope("phi3"))
    with refused(ValueError, "509", "max_tokens", "4", "512"):
        generate(target, [np.full(509, 5)], None, Options(max_tokens=4))


# Longrope


@pytest.mark.parametrize(
    ("family", "layout", "together"),
    [("llama", TreeLayout(), True), ("llama", BatchLayout(2), False), ("phi3", TreeLayout(), False)],
)
def test_every_text_is_that_of_a_call_of_its_own(family, layout, together):
    model = longrope(family)
    target, texts = CausalLMTarget(model), [plain(model, prompt) for prompt in PROMPTS]
    options = Options(max_tokens=MOST, layout=layout)
    calls = [PROMPTS] if together else [[prompt] for prompt in PROMPTS]
    prophet = Prophet([[*prompt.tolist(), *text] for prompt, text in zip(PROMPTS, texts)])
    blend = [blended_drafter(target, None, nodes=16)] if layout.copies == 1 else []
    for drafter in (None, prophet, *blend):
        assert [text for prompts in calls for text in tokens_of(generate(target, prompts, drafter, options))] == texts
    assert texts[1] != plain(longrope(family, factor=1.0), PROMPTS[1])


# Mask tokens, with every drafter of lattices


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_mask_tokens_follow_the_text_across_the_switch(family):
    model = longrope(family)
    target = BitaTarget(model, BitaTokens.new(CausalLMTarget(model), masks=2, prompts=3))
    drafter = blended_drafter(target, None, lattice=HeadsLattice(heads=BitaHeads(target), top_k=4), nodes=8)
    found = generate(target, PROMPTS, drafter, Options(max_tokens=MOST))
    assert tokens_of(found) == [plain(model, prompt) for prompt in PROMPTS]


def drafters(target):
    heads = BitaHeads(target)
    for top_k in (1, 5):
        lattice = HeadsLattice(heads=heads, top_k=top_k)
        yield f"tree, top {top_k}", TreeDrafter(lattice, Rescorer(), nodes=6), TreeLayout()
        yield f"blend, top {top_k}", blended_drafter(target, lattice=lattice, nodes=9), TreeLayout()
    lattice = HeadsLattice(heads=heads, top_k=4)
    yield "auto", TreeDrafter(lattice, Rescorer(), nodes=AutoWidth(target)), TreeLayout()
    yield "paths as rows", PathDrafter(lattice, Rescorer(), paths=3), BatchLayout(3)


@pytest.mark.parametrize("name", ["llama-eager", "gpt2", "mistral", "gemma2", "deepseek-v3"])
def test_greedy_text_with_mask_tokens_is_the_models_own(name):
    target = target_of(name)
    prompts = [np.array(ids) for ids in ([4, 5, 6, 4, 5], [9], [11, 30, 2, 8, 11, 30, 2, 8, 11], [7, 7, 7])]
    expected = [plain(target.model, prompt, 14) for prompt in prompts]
    for drafter_name, drafter, layout in drafters(target):
        options = Options(max_tokens=14, layout=layout)
        assert tokens_of(generate(target, prompts, drafter, options)) == expected, drafter_name
        assert tokens_of(generate(target, prompts[2:3], drafter, options)) == expected[2:3], drafter_name
