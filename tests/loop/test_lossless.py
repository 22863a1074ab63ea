"""A part of the grid of tools/check/lossless.py: every family and drafter gives the text of Hugging Face `generate`."""

from __future__ import annotations

import numpy as np
import pytest
from support.tools import load_tool

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from rescore.decode.loop.generate import Options, generate
from rescore.lattice.dump import Dump

check_lossless = load_tool("check/lossless")
small_models = load_tool("check/small_models")

TOKENS = 12


@pytest.fixture(scope="module")
def material(demo):
    dump = Dump.open(demo / "sampled")
    text = check_lossless.text_of(dump)
    return check_lossless.prompts_of(dump, 5), text, check_lossless.model_of(text, dump.header.end_of_text)


@pytest.mark.parametrize("family", small_models.FAMILIES)
def test_every_drafter_writes_what_generate_writes(family, material):
    prompts, text, lm = material
    model, other = (small_models.small(family, text, lm.vocab_size, steps=3, seed=seed) for seed in (1, 2))
    expected = [check_lossless.reference(model, prompt, TOKENS) for prompt in prompts]
    for name, drafter, layout in check_lossless.drafters(model, lm, other):
        together = generate(model.target, prompts, drafter, Options(max_tokens=TOKENS, layout=layout))
        alone = generate(model.target, prompts[3:4], drafter, Options(max_tokens=TOKENS, layout=layout))
        assert [one.tokens.tolist() for one in together] == expected, name
        assert alone[0].tokens.tolist() == expected[3], name
        if "auto" not in name:  # which depends on how long passes take
            assert alone[0].statistics.accepted == together[3].statistics.accepted, name


def test_in_bfloat16_a_token_is_the_argmax_or_nearly(material):
    """Within two roundings of a logit of this size: 2^-8 of it each."""
    prompts, text, lm = material
    model = small_models.small("llama", text, lm.vocab_size, steps=3, seed=1, dtype=torch.bfloat16)
    for name, drafter, layout in check_lossless.drafters(
        model, lm, small_models.small("llama", text, lm.vocab_size, steps=0, seed=2, dtype=torch.bfloat16)
    ):
        for prompt, one in zip(
            prompts, generate(model.target, prompts, drafter, Options(max_tokens=TOKENS, layout=layout))
        ):
            assert check_lossless.margins(model, prompt, one.tokens).max() <= 2 * 2**-8 * 8, name


def test_prompts_are_ragged_and_of_all_tasks(material):
    lengths = [len(prompt) for prompt in material[0]]
    assert len(set(lengths)) == 5 and min(lengths) >= 5 and all(prompt.dtype == np.int64 for prompt in material[0])
