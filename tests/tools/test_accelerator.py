"""The bench of passes with an accelerator's times: texts are those of decoding, and a pass takes what it is given."""

import numpy as np
import pytest
from support import tiny_transformers
from support.tools import load_tool

from rescore.decode.draft.blended_drafter import blended_drafter
from rescore.decode.loop.generate import Options, generate
from rescore.decode.loop.request import Request
from rescore.decode.models.causal_lm import CausalLMTarget

bench = load_tool("bench/accelerator")
PROMPTS = [np.array([5, 6, 7, 5, 6, 7, 5, 6], np.int32), np.array([9], np.int32)]


@pytest.mark.parametrize("nodes", [0, 16, None])
def test_passes_take_the_given_times(nodes):
    """A second each, of which the rest of a step is a small part."""
    model, options = CausalLMTarget(tiny_transformers.shared("llama")), Options(max_tokens=30)
    target = bench.Elsewhere(model, {1: 1000.0, 129: 1000.0})
    drafter = None if nodes == 0 else blended_drafter(target, nodes=nodes)
    tokens, seconds, passes, sizes = bench.decode(target, PROMPTS, drafter, options)
    plain = generate(model, [Request(prompt=prompt) for prompt in PROMPTS], None, options)
    assert (1 + tokens).tolist() == [len(one.tokens) for one in plain]
    assert passes == sizes.total() and passes < sum(tokens) if drafter else passes == sum(tokens)
    assert sum(seconds) == pytest.approx(passes, rel=0.2)
