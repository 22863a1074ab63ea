"""Tiny Hugging Face models with random weights, one per tested family."""

import functools
from typing import Any

import torch
import transformers

V = 37
_SHAPE = dict(vocab_size=V, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64)
_NEOX = dict(_SHAPE, intermediate_size=48)
_GROUPED = dict(_NEOX, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_MOE = dict(_GROUPED, num_experts_per_tok=2, moe_intermediate_size=16)
_EXPERTS = dict(_MOE, n_group=1, topk_group=1, n_routed_experts=4)
_LATENT = dict(_EXPERTS, num_key_value_heads=4, first_k_dense_replace=1, q_lora_rank=16)
_LATENT |= dict.fromkeys(("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8)
_T5 = dict(vocab_size=V, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
_T5 |= dict(relative_attention_num_buckets=8, relative_attention_max_distance=12)
_BART = dict(vocab_size=V, d_model=32, max_position_embeddings=40, decoder_start_token_id=2)
_BART |= dict(encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48)
_BART |= dict(decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=48)
_GPT2 = dict(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=64)
_NEO = dict(vocab_size=V, hidden_size=32, num_layers=2, num_heads=4, max_position_embeddings=64)
_NEO |= dict(attention_types=[[["global", "local"], 1]], window_size=5)
_SPARSE = dict(mlp_layer_types=["sparse"] * 2, num_experts=4, num_mtp_layers=1)
_SLIDING, _FULL = "sliding_attention", "full_attention"

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "llama-tied": ("Llama", dict(_GROUPED, tie_word_embeddings=True, num_key_value_heads=1)),
    "llama-eager": ("Llama", dict(_GROUPED, attn_implementation="eager")),
    "qwen2": ("Qwen2", dict(_GROUPED, use_sliding_window=True, sliding_window=5, max_window_layers=1)),
    "qwen3": ("Qwen3", dict(_GROUPED, head_dim=16)),
    "gpt2": ("GPT2", dict(_GPT2, bos_token_id=1, eos_token_id=2)),
    "mistral": ("Mistral", dict(_GROUPED, sliding_window=5)),
    "gemma2": ("Gemma2", dict(_GROUPED, sliding_window=5, head_dim=8, final_logit_softcapping=3.0)),
    "gemma3": ("Gemma3Text", dict(_GROUPED, sliding_window=5, head_dim=8, layer_types=[_SLIDING, _FULL])),
    "gpt-neo": ("GPTNeo", dict(_NEO, bos_token_id=1, eos_token_id=2)),
    "gpt-neox": ("GPTNeoX", _NEOX),
    "olmo2": ("Olmo2", _GROUPED),
    "phi3": ("Phi3", dict(_GROUPED, sliding_window=5)),
    "granite": ("Granite", dict(_GROUPED, logits_scaling=3.0)),
    "cohere": ("Cohere", dict(_GROUPED, logit_scale=0.3)),
    "deepseek-v3": ("DeepseekV3", dict(_LATENT, num_mtp_layers=3)),
    "glm4-moe": ("Glm4Moe", dict(_EXPERTS, head_dim=8, num_mtp_layers=2)),
    "mellum": ("Mellum", dict(_MOE, **_SPARSE, sliding_window=4, head_dim=8, layer_types=[_FULL, _SLIDING])),
    "t5": ("T5", _T5),
    "t5-untied": ("T5", dict(_T5, tie_word_embeddings=False, feed_forward_proj="gated-gelu")),
    "umt5": ("UMT5", _T5),
    "bart": ("Bart", _BART),
}
CAUSAL = [name for name in CONFIGS if name.split("-")[0] not in ("t5", "umt5", "bart")]
ENCODER_DECODER = [name for name in CONFIGS if name not in CAUSAL]


def config_of(name: str, **changed: Any) -> Any:
    family, fields = CONFIGS[name]
    fields = {key: value for key, value in {**fields, **changed}.items() if key != "attn_implementation"}
    return getattr(transformers, f"{family}Config")(**fields)


def build(name: str, **changed: Any) -> Any:
    """A model in fp32 and evaluation mode, with weights large enough that every part matters."""
    config = config_of(name, **changed)
    kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    options = {key: value for key, value in CONFIGS[name][1].items() if key == "attn_implementation"}
    return randomised(kind.from_config(config, **options)).eval()


def generating(vocab_size: int, *, end: int, pad: int) -> Any:
    """A Llama of many ids, whose texts end and are padded with these."""
    torch.manual_seed(0)
    made = build("llama", vocab_size=vocab_size)
    made.generation_config.eos_token_id, made.generation_config.pad_token_id = end, pad
    return made


@functools.cache
def shared(name: str) -> Any:
    """The same, built once; do not change it."""
    return build(name)


@torch.no_grad()
def randomised(module: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    for parameter in module.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(
            0.2 * noise if parameter.dim() > 1 else parameter + 0.1 * noise if parameter.isfinite().all() else noise
        )
    return module


SWITCH = 16


@functools.cache
def longrope(family: str, factor: float = 4.0):
    switch = dict(original_max_position_embeddings=SWITCH)
    rope = dict(switch, rope_type="longrope", rope_theta=1e4, short_factor=[1.0] * 4, long_factor=[factor] * 4)
    more = dict(switch, sliding_window=None) if family == "phi3" else {}
    return build(family, rope_parameters=rope, max_position_embeddings=512, **more)


@functools.cache
def whisper(**changed: Any) -> Any:
    """Whisper, which hears 32 frames of 8 bands. Behind the ids of text stand those with which an answer begins, and
    those of times.
    """
    torch.manual_seed(3)
    sizes = dict(layers=2, attention_heads=2, ffn_dim=24)
    ends = {f"{name}_token_id": 2 for name in ("pad", "bos", "eos")}
    config = transformers.WhisperConfig(
        vocab_size=V + 33,
        d_model=16,
        **{f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()},
        num_mel_bins=8,
        **{"max_source_positions": 16, "max_target_positions": 40, **changed},
        **ends,
        decoder_start_token_id=V,
    )
    model = transformers.WhisperForConditionalGeneration(config).eval()
    for weights in model.parameters():
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.3)
    told = dict(ends, decoder_start_token_id=V, no_timestamps_token_id=V + 1, suppress_tokens=[5, 6])
    told |= dict(begin_suppress_tokens=[2, 9], is_multilingual=False, max_length=40, max_initial_timestamp_index=20)
    model.generation_config = transformers.GenerationConfig(**told)
    return model
