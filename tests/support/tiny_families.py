"""Every causal family of the installed transformers at a small size, with random weights."""

import re
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

FAMILIES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
V = 99
MOST = 8_000_000  # parameters; what has more at these sizes has parts that they do not shrink

# Values and the fields that get them, in the families that have these.
SIZES: dict[Any, str] = {
    32: "hidden_size d_model n_embd dim embedding_size emb_dim word_embed_proj_dim",
    48: "intermediate_size ffn_dim d_ff n_inner ffn_hidden_size decoder_ffn_dim encoder_ffn_dim",
    128: "max_position_embeddings n_positions max_seq_len n_ctx",
    16: "moe_intermediate_size shared_expert_intermediate_size q_lora_rank qk_head_dim",
    8: "head_dim kv_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim linear_key_head_dim linear_value_head_dim "
    "state_size ssm_state_size mamba_d_state mamba_n_heads mamba_d_head mamba_head_dim",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts "
    "num_local_experts n_routed_experts linear_num_value_heads mamba_num_heads chunk_size mamba_chunk_size rotary_dim",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers depth linear_num_key_heads "
    "n_groups num_key_value_heads num_experts_per_tok",
    1: "n_group topk_group first_k_dense_replace bos_token_id",
    5: "sliding_window",
    V: "vocab_size vocab_size_per_layer_input",
    0.2: "initializer_range",
}
SMALL: dict[str, Any] = {name: size for size, names in SIZES.items() for name in names.split()}
SMALL |= {"is_decoder": True, "eos_token_id": None, "pad_token_id": 0}
_LATENT = dict(num_key_value_heads=4)
_HYBRID = dict(num_hidden_layers=4)
_MIXED = dict(layer_types=["linear_attention", "full_attention"])
OWN: dict[str, dict[str, Any]] = {  # what some families need beside
    **dict.fromkeys("axk1 axk2 deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe_lite".split(), _LATENT),
    **dict.fromkeys("glm_moe_dsa longcat_flash minicpm3 sarvam_mla youtu".split(), _LATENT),
    **dict.fromkeys("qwen3_5_text qwen3_5_moe_text qwen3_next".split(), _HYBRID),
    "kimi_linear": dict(**_LATENT, **_MIXED, num_experts_per_token=2, linear_head_dim=8, linear_num_heads=4),
    "bailing_hybrid": dict(**_LATENT, **_MIXED, num_experts_per_token=2, num_expert_group=1),
    "jamba": dict(num_hidden_layers=8),
    "recurrent_gemma": dict(num_hidden_layers=3),
    "gpt_neo": dict(attention_types=[[["global", "local"], 1]], window_size=5),
    "dots1": dict(n_shared_experts=1),
    "gemma3n_text": dict(num_hidden_layers=5, num_kv_shared_layers=0),
    "mamba2": dict(num_heads=8),
    "bamba": dict(attn_layer_indices=[1]),
    "falcon_h1": dict(mamba_d_ssm=64),
    "granitemoehybrid": _MIXED,
    "lfm2": dict(layer_types=["conv", "full_attention"]),
    "zamba2": dict(layers_block_type=["linear_attention", "hybrid"], n_mamba_heads=8, mamba_headdim=8),
    "zaya": dict(num_experts_per_tok=1),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"], num_dense_layers=1),
    "xmod": dict(default_language="en_XX"),
}


def small_config(family: str, **changes: Any) -> Any:
    """The family's configuration with the fields of `SMALL` that it has and lets be set, and changes."""
    kind = CONFIG_MAPPING[family]
    default = kind()
    fields = {name: value for name, value in SMALL.items() if name in default.to_dict()}
    fields |= OWN.get(family, {}) | changes
    while True:
        try:
            return kind(**fields)
        except AttributeError as error:  # a property, or a value for each layer
            name = next((name for name in re.findall(r"'(\w+)'", str(error)) if name in fields), None)
            if name is None:
                raise
            del fields[name]


def small_model(family: str, **changes: Any) -> Any:
    """A model of `small_config` in evaluation mode. ValueError if it has too many parameters; the family's own errors
    if it fails.
    """
    config = small_config(family, **changes)
    with torch.device("meta"):
        size = sum(one.numel() for one in transformers.AutoModelForCausalLM.from_config(config).parameters())
    if size > MOST:
        raise ValueError(f"{family}: expected at most {MOST:,} parameters at this size, got {size:,}")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.generation_config.eos_token_id = None
    return model
