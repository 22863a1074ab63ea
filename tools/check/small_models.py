"""Small models of every supported family with heads, random or trained for seconds on the demo's text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn

from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseHeads, BlockwiseTarget, BlockwiseTransformer
from rescore.decode.models.causal_lm import CausalLMTarget
from rescore.decode.models.draft_step import Heads
from rescore.decode.models.encoder_decoder import EncoderDecoderTarget
from rescore.decode.models.medusa import MedusaHeads
from rescore.decode.models.target import Target

HEADS, WIDTH, LAYERS = 4, 64, 2
_SHAPE = {
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
_GROUPED = {**_SHAPE, "num_key_value_heads": 2, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None}

CONFIGS: dict[str, Callable[[int], Any]] = {
    "llama": lambda v: transformers.LlamaConfig(vocab_size=v, **_GROUPED),
    "qwen2": lambda v: transformers.Qwen2Config(vocab_size=v, **_GROUPED),
    "qwen3": lambda v: transformers.Qwen3Config(vocab_size=v, head_dim=16, **_GROUPED),
    "mistral": lambda v: transformers.MistralConfig(vocab_size=v, sliding_window=24, **_GROUPED),
    "gpt2": lambda v: transformers.GPT2Config(
        vocab_size=v, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_positions=512, bos_token_id=None, eos_token_id=None
    ),
    "t5": lambda v: transformers.T5Config(
        vocab_size=v,
        d_model=WIDTH,
        d_kv=16,
        d_ff=2 * WIDTH,
        num_layers=LAYERS,
        num_heads=4,
        decoder_start_token_id=0,
        eos_token_id=None,
    ),
}
FAMILIES = ("blockwise", *CONFIGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A target, its heads 2..h, and the transformers model, for families of transformers."""

    target: Target
    heads: Heads
    model: Any


def small(
    family: str, text: np.ndarray, vocab_size: int, *, steps: int, seed: int, dtype: torch.dtype = torch.float32
) -> Small:
    """A model of the family, trained for `steps` batches of text int [n]; 0 gives random weights."""
    torch.manual_seed(seed)
    if family == "blockwise":
        model = BlockwiseTransformer(
            BlockwiseConfig(
                vocab_size=vocab_size, heads=HEADS, layers=LAYERS, width=WIDTH, hidden=2 * WIDTH, head_hidden=WIDTH
            )
        )
        _scatter(model)
        train(model, lambda ids: model.all_logits(model(ids)), text, steps)
        model = model.to(dtype).eval()
        return Small(target=BlockwiseTarget(model), heads=BlockwiseHeads(model), model=model)
    config = CONFIGS[family](vocab_size)
    encoder_decoder = config.is_encoder_decoder
    model = (transformers.AutoModelForSeq2SeqLM if encoder_decoder else transformers.AutoModelForCausalLM).from_config(
        config, attn_implementation="sdpa"
    )
    heads = MedusaHeads(heads=HEADS - 1, width=WIDTH, output=lambda hidden: target.logits(hidden))
    _scatter(heads)
    both = nn.ModuleList([model, heads])
    train(both, lambda ids: _all_logits(model, heads, ids), text, steps)
    both.to(dtype).eval()
    target = EncoderDecoderTarget(model) if encoder_decoder else CausalLMTarget(model)
    return Small(target=target, heads=heads, model=model)


def train(module: nn.Module, logits: Callable[[Tensor], Tensor], text: np.ndarray, steps: int) -> None:
    """Trains all heads jointly; logits(ids [B, L]) -> [B, L, h, V]."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=4e-3)
    stream = torch.from_numpy(text.astype(np.int64))
    for _ in range(steps):
        ids = stream[torch.randint(len(stream) - 48, (16, 1)) + torch.arange(48)]
        found = logits(ids)
        loss = sum(
            nn.functional.cross_entropy(found[:, :-j, j - 1].flatten(0, 1), ids[:, j:].flatten())
            for j in range(1, found.shape[2] + 1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _scatter(module: nn.Module) -> None:
    """Randomises weights that training starts from zero, so that untrained heads differ."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)


def _all_logits(model: Any, heads: MedusaHeads, ids: Tensor) -> Tensor:
    if model.config.is_encoder_decoder:
        states = model(input_ids=ids[:, :8], decoder_input_ids=ids, output_hidden_states=True).decoder_hidden_states[-1]
        if model.config.tie_word_embeddings:
            states = states * WIDTH**-0.5
    else:
        states = model.get_decoder()(input_ids=ids).last_hidden_state
    output = model.get_output_embeddings()
    return output(torch.cat((states[..., None, :], heads.states(states)), dim=-2))
