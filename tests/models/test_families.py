"""Every causal family of the installed transformers, small and random: its text with drafts is `generate`'s, or the
family is refused. No family differs silently.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from support.tiny_families import FAMILIES, small_model

from rescore.decode.engines.huggingface.drafting import Drafting

PROMPTS = torch.tensor([[5, 6, 7, 8, 5, 6], [0, 0, 9, 8, 7, 9]])  # the second padded on the left
EQUAL, REFUSED, UNBUILT = "equal", "refused", "not built at this size"
EXPECTED = {
    EQUAL: """
        apertus arcee aria_text bailing_hybrid bamba biogpt bitnet codegen cohere cohere2 ctrl cwm deepseek_v2
        deepseek_v3 diffllama doge dots1 ernie4_5 ernie4_5_moe exaone4 falcon falcon_h1 flex_olmo gemma gemma2
        gemma3_text gemma3n_text gemma4_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss gptj granite
        granitemoe granitemoehybrid helium hunyuan_v1_dense jais2 kimi_linear lara_mini lfm2 lfm2_moe lfm3 llama
        mamba2 minicpm3 ministral mistral mixtral nemotron nemotron_h olmo olmo2 olmo3 olmo_hybrid olmoe opt persimmon
        phi phi3 phimoe qwen2 qwen2_moe qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next seed_oss smollm3
        stablelm starcoder2 xglm zamba2 zaya
    """.split(),
    REFUSED: """
        bart bert bloom deepseek_v4 electra falcon_mamba inkling_text jamba llama4_text mamba minimax mpt
        recurrent_gemma roberta rwkv whisper
    """.split(),
}


def text(model, **options) -> list[list[int]]:
    return model.generate(
        input_ids=PROMPTS,
        attention_mask=(PROMPTS > 0).long(),
        max_new_tokens=16,
        do_sample=False,
        pad_token_id=0,
        **options,
    ).tolist()


@cache
def found(family: str) -> str:
    """EQUAL, REFUSED or UNBUILT, with the reason; fails if the text differs."""
    try:
        model = small_model(family)
        plain = text(model)
    except Exception as error:  # of the family's own code, at sizes it was not made for
        return f"{UNBUILT}: {type(error).__name__}: {error}"
    drafting = Drafting(nodes=8)
    try:
        drafted = text(model, custom_generate=drafting)
    except (ValueError, TypeError) as error:
        return f"{REFUSED}: {error}"
    assert drafted == plain, family
    assert all(sum(row.drafted) for row in drafting.statistics), family
    return EQUAL


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_is_generates_or_the_family_is_refused(family):
    result = found(family)
    if result.startswith(REFUSED):
        assert ": expected " in result  # what was expected, not an error in passing


@pytest.mark.parametrize("expected", EXPECTED)
def test_named_families_are_what_they_are_known_to_be(expected):
    others = {family: found(family) for family in EXPECTED[expected] if family in FAMILIES}
    assert not {family: result for family, result in others.items() if not result.startswith(expected)}


def test_most_families_are_built():
    counts = Counter(found(family).split(":")[0] for family in FAMILIES)
    assert counts[EQUAL] + counts[REFUSED] > 3 * counts[UNBUILT], counts
