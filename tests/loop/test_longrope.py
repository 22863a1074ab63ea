"""Texts on both sides of the length at which longrope switches its angles, against `generate` of each text alone."""

import numpy as np
import pytest
import torch
from support.generating import Prophet
from support.refusals import refused
from support.tiny_transformers import SWITCH, V, longrope

from rescore import BlendedDrafter, HeadsLattice, Options, generate
from rescore.decode.loop.layout import BatchLayout, TreeLayout
from rescore.decode.models.bita import BitaHeads, BitaTarget, BitaTokens
from rescore.decode.models.causal_lm import CausalLMTarget

LENGTHS, MOST = (1, 8, SWITCH - 1, SWITCH, SWITCH + 1, 40), 30
PROMPTS = [np.random.default_rng(n).integers(3, V, n) for n in LENGTHS]


def plain(model, prompt, most: int = MOST) -> list[int]:
    options = dict(do_sample=False, max_new_tokens=most, eos_token_id=None, pad_token_id=0)
    return model.generate(torch.from_numpy(prompt)[None], **options)[0, len(prompt) :].tolist()


@pytest.mark.parametrize(
    ("family", "layout", "together"),
    [("llama", TreeLayout(), True), ("llama", BatchLayout(2), False), ("phi3", TreeLayout(), False)],
)
def test_every_text_is_that_of_a_call_of_its_own(family, layout, together):
    model = longrope(family)
    target, texts = CausalLMTarget(model), [plain(model, prompt) for prompt in PROMPTS]
    options = Options(max_tokens=MOST, layout=layout)
    calls = [PROMPTS] if together else [[prompt] for prompt in PROMPTS]
    for drafter in (
        None,
        Prophet([[*prompt.tolist(), *text] for prompt, text in zip(PROMPTS, texts)]),
        *([BlendedDrafter(target, None, nodes=16)] * (layout.copies == 1)),
    ):
        found = [one for prompts in calls for one in generate(target, prompts, drafter, options)]
        assert [one.tokens.tolist() for one in found] == texts
    assert texts[1] != plain(longrope(family, factor=1.0), PROMPTS[1])


@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_mask_tokens_follow_the_text_across_it(family):
    model = longrope(family)
    target = BitaTarget(model, BitaTokens.new(CausalLMTarget(model), masks=2, prompts=3))
    drafter = BlendedDrafter(target, None, lattice=HeadsLattice(heads=BitaHeads(target), top_k=4), nodes=8)
    found = generate(target, PROMPTS, drafter, Options(max_tokens=MOST))
    assert [one.tokens.tolist() for one in found] == [plain(model, prompt) for prompt in PROMPTS]


def test_the_end_is_that_of_the_positions():
    target = CausalLMTarget(longrope("phi3"))
    with refused(ValueError, "509", "max_tokens", "4", "512"):
        generate(target, [np.full(509, 5)], None, Options(max_tokens=4))
