"""Models by their shapes alone: configurations by name, and targets with random weights."""

from __future__ import annotations

import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM, PretrainedConfig

from rescore.decode.models.causal_lm import CausalLMTarget


def _llama(width: int, layers: int, heads: int, key_heads: int, hidden: int, vocab_size: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        intermediate_size=hidden,
        vocab_size=vocab_size,
        max_position_embeddings=1 << 16,
    )


SHAPES = {
    "tiny": _llama(32, 2, 4, 2, 64, 128),
    "1.5b": _llama(1536, 28, 12, 2, 8960, 151936),  # of Qwen2.5-1.5B, which ties its output matrix
    "7b": _llama(4096, 32, 32, 32, 11008, 32000),  # of Llama-2-7B
    # The Llama 3 Herd of Models, arXiv:2407.21783, table 3; feed-forward widths of the released config.json.
    "llama-3-8b": _llama(4096, 32, 32, 8, 14336, 128256),
    "llama-3-70b": _llama(8192, 80, 64, 8, 28672, 128256),
}


def config_of(name: str) -> PretrainedConfig:
    """The configuration of a shape above, of a folder or of a model of the Hugging Face Hub."""
    return SHAPES[name] if name in SHAPES else AutoConfig.from_pretrained(name)


def random_target(shape: str, device: str, dtype: torch.dtype) -> CausalLMTarget:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return CausalLMTarget(LlamaForCausalLM(SHAPES[shape]).eval())
    finally:
        torch.set_default_dtype(before)
