"""Small GGUF files: random models without a tokenizer, for llama.cpp, and models of transformers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np

V, WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 96, 32, 2, 4, 64, 512


def write_gguf(path: Path, seed: int = 0) -> Path:
    """A float32 Llama with repetitive greedy text, so that drafts from the text are often right."""
    draw = np.random.default_rng(seed)
    shapes = {"token_embd.weight": (V, WIDTH), "output_norm.weight": (WIDTH,), "output.weight": (V, WIDTH)}
    for layer in range(LAYERS):
        for name, shape in (
            ("attn_norm", (WIDTH,)),
            ("attn_q", (WIDTH, WIDTH)),
            ("attn_k", (WIDTH, WIDTH)),
            ("attn_v", (WIDTH, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)),
            ("ffn_norm", (WIDTH,)),
            ("ffn_gate", (HIDDEN, WIDTH)),
            ("ffn_up", (HIDDEN, WIDTH)),
            ("ffn_down", (WIDTH, HIDDEN)),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = shape
    tensors = ((name, 0.4 * draw.standard_normal(shape) + (len(shape) == 1)) for name, shape in shapes.items())
    numbers = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS, "head_count": HEADS}
    numbers |= {"feed_forward_length": HIDDEN, "layer_norm_rms_eps": 1e-5, "vocab_size": V, "tokenizer_model": "none"}
    return _written(path, "llama", numbers, tensors)


LLAMA = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
}
LFM2 = {
    "model.embed_tokens": "token_embd",
    "model.embedding_norm": "token_embd_norm",
    "lm_head": "output",
    "operator_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate",
    "feed_forward.w2": "ffn_down",
    "feed_forward.w3": "ffn_up",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm",
    "self_attn.k_layernorm": "attn_k_norm",
    "conv.in_proj": "shortconv.in_proj",
    "conv.out_proj": "shortconv.out_proj",
    "conv.conv": "shortconv.conv",
}


def write_llama(path: Path, model: Any, **tokenizer: Any) -> Path:
    """A Llama of transformers with tied embeddings; `tokenizer` is what the file says of one."""
    config, tensors = model.config, []
    for name, weight in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:  # llama.cpp turns neighbouring values together, transformers the halves of a head
                weight = weight.reshape(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)
        tensors.append((_renamed(name, LLAMA), weight))
    numbers = {**_shape(config), "feed_forward_length": config.intermediate_size}
    numbers |= {"head_count_kv": config.num_key_value_heads, "layer_norm_rms_eps": config.rms_norm_eps}
    return _written(path, "llama", numbers | tokenizer, tensors)


def write_lfm2(path: Path, model: Any) -> Path:
    """An LFM2 of transformers, whose short convolutions have recurrent state, in float32."""
    config, weights = model.config, model.state_dict()
    attends = [kind == "full_attention" for kind in config.layer_types]
    numbers = {
        **_shape(config),
        "feed_forward_length": weights["model.layers.0.feed_forward.w1.weight"].shape[0],
        "head_count_kv": [config.num_key_value_heads * own for own in attends],
        "layer_norm_rms_eps": config.norm_eps,
        "shortconv_l_cache": config.conv_L_cache,
        "tokenizer_model": "none",
    }
    tensors = [
        (_renamed(name, LFM2), weight[:, 0] if weight.dim() == 3 else weight) for name, weight in weights.items()
    ]
    return _written(path, "lfm2", numbers, tensors)


def _shape(config: Any) -> dict[str, Any]:
    """What both kinds say of themselves in the same words."""
    return {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "head_count": config.num_attention_heads,
        "vocab_size": config.vocab_size,
        "rope_freq_base": config.rope_parameters["rope_theta"],
    }


def _renamed(name: str, names: dict[str, str]) -> str:
    """The name of a weight in a file."""
    name = name.removesuffix(".weight")
    if name not in names:
        _, _, layer, part = name.split(".", 3)
        return f"blk.{layer}.{names[part]}.weight"
    return f"{names[name]}.weight"


def _written(path: Path, kind: str, numbers: dict[str, Any], tensors: Iterable[tuple[str, Any]]) -> Path:
    writer = gguf.GGUFWriter(str(path), kind)
    for name, value in numbers.items():
        getattr(writer, f"add_{name}")(value)
    for name, weight in tensors:
        writer.add_tensor(name, np.ascontiguousarray(weight, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
