"""Decoding with mask tokens: the text of Hugging Face `generate`, in batches, with every drafter of lattices."""

import numpy as np
import pytest
import torch
from support.bita import target_of

from rescore import BlendedDrafter, HeadsLattice, Options, Rescorer, TreeDrafter, generate
from rescore.decode.draft.lattice_drafters import LatticeTreeDrafter, PathDrafter, StaticTree
from rescore.decode.draft.pace import AutoWidth
from rescore.decode.loop.layout import BatchLayout
from rescore.decode.models.bita import BitaHeads

TOKENS = 14
PROMPTS = [np.array(ids) for ids in ([4, 5, 6, 4, 5], [9], [11, 30, 2, 8, 11, 30, 2, 8, 11], [7, 7, 7])]


def reference(model, prompt) -> list[int]:
    ids = torch.tensor([prompt.tolist()])
    options = dict(max_new_tokens=TOKENS, do_sample=False, eos_token_id=None, pad_token_id=0)
    return model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(prompt) :].tolist()


def drafters(target):
    heads = BitaHeads(target)
    for top_k in (1, 5):
        lattice = HeadsLattice(heads=heads, top_k=top_k)
        yield f"tree, top {top_k}", TreeDrafter(lattice, Rescorer(), nodes=6), None
        yield f"blend, top {top_k}", BlendedDrafter(target, lattice=lattice, nodes=9), None
    lattice = HeadsLattice(heads=heads, top_k=4)
    yield "BiTA's tree", LatticeTreeDrafter(lattice, StaticTree.spine(3, 4).trees, nodes=12), None
    yield "auto", TreeDrafter(lattice, Rescorer(), nodes=AutoWidth(target)), None
    yield "paths as rows", PathDrafter(lattice, Rescorer(), paths=3), BatchLayout(3)


@pytest.mark.parametrize("name", ["llama-eager", "gpt2", "mistral", "gemma2", "deepseek-v3"])
def test_greedy_text_is_the_model_s_own(name):
    target = target_of(name)
    expected = [reference(target.model, prompt) for prompt in PROMPTS]
    for drafter_name, drafter, layout in drafters(target):
        options = Options(max_tokens=TOKENS, **({"layout": layout} if layout else {}))
        together = generate(target, PROMPTS, drafter, options)
        alone = generate(target, PROMPTS[2:3], drafter, options)
        assert [one.tokens.tolist() for one in together] == expected, drafter_name
        assert alone[0].tokens.tolist() == expected[2], drafter_name
