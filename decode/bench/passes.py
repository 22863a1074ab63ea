"""Measures the time of a target's passes by width."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
import torch

from rescore.decode.cost.model_shape import ModelShape
from rescore.decode.draft.pass_costs import PassCosts
from rescore.decode.loop.layout import TreeLayout
from rescore.decode.models.block import Block
from rescore.decode.models.target import Target
from rescore.lattice.extras import needed_for
from rescore.lattice.tree import TokenTree

WIDTHS = (1, 2, 3, 5, 9, 17, 33, 65, 129)
REPEATS = 3


@torch.inference_mode()
def measure_passes(
    target: Target,
    *,
    rows: int = 1,
    length: int = 64,
    widths: Sequence[int] = WIDTHS,
    repeats: int = REPEATS,
    trees: bool = False,
) -> PassCosts:
    """Returns the median time of passes of each width after `length` tokens, with the steps of the decode loop: hidden
    states, logits, argmax.

    trees: verify binary trees instead of chains. Widths that do not fit into the model's context are left out.
    """
    if target.context is not None:
        widths = [width for width in widths if width < target.context] or [1]
        length = max(1, min(length, target.context - max(widths)))
    prompt = np.zeros(length, np.int64)
    cache, firsts = target.open([prompt] * rows, 1, length + max(widths))
    start = len(firsts[0])
    target.read(Block.of_texts(firsts, [0] * rows, target.device), cache)
    tokens, seconds = [], []
    for width in widths:
        tree = _branching(width - 1) if trees else TokenTree.from_drafts(np.zeros(width - 1, np.int32))
        block = TreeLayout().lay([tree] * rows, [0] * rows, [start] * rows, target.device).block
        times = []
        for _ in range(1 + repeats):
            began = time.perf_counter()
            target.logits(target.read(block, cache)).argmax(dim=-1).cpu()  # waits for the device
            times.append(time.perf_counter() - began)
        tokens.append(rows * width)
        seconds.append(statistics.median(times[1:]))
    return PassCosts.of_times(tokens, seconds)


def _branching(nodes: int) -> TokenTree:
    return TokenTree.from_parents([i % 2 for i in range(nodes)], [i // 2 - 1 for i in range(nodes)])


def random_target(shape: ModelShape, device: torch.device, dtype: torch.dtype) -> Target:
    """Makes a causal language model of this shape with random weights. ImportError without transformers."""
    with needed_for("a model with random weights"):
        from transformers import LlamaConfig, LlamaForCausalLM
    from rescore.decode.models.causal_lm import CausalLMTarget

    config = LlamaConfig(
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        intermediate_size=shape.hidden,
        vocab_size=shape.vocab_size,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=1 << 16,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            return CausalLMTarget(LlamaForCausalLM(config).eval())
    finally:
        torch.set_default_dtype(before)
