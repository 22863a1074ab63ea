"""Small GGUF files of random models without a tokenizer, for llama.cpp."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

V, WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 96, 32, 2, 4, 64, 512


def write_gguf(path: Path, seed: int = 0) -> Path:
    """A float32 Llama with repetitive greedy text, so that drafts from the text are often right."""
    draw = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(V)
    writer.add_tokenizer_model("none")
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
    for name, shape in shapes.items():
        weights = 0.4 * draw.standard_normal(shape) + (len(shape) == 1)
        writer.add_tensor(name, weights.astype(np.float32))
    return _written(writer, path)


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


def write_lfm2(path: Path, model: Any) -> Path:
    """An LFM2 of transformers, whose short convolutions have recurrent state, in float32."""
    config, weights = model.config, model.state_dict()
    writer = gguf.GGUFWriter(str(path), "lfm2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(weights["model.layers.0.feed_forward.w1.weight"].shape[0])
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv([config.num_key_value_heads * (kind == "full_attention") for kind in config.layer_types])
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("none")
    for name, weight in weights.items():
        name = name.removesuffix(".weight")
        if name not in LFM2:
            _, _, layer, part = name.split(".", 3)
            name = f"blk.{layer}.{LFM2[part]}"
        flat = weight[:, 0] if weight.dim() == 3 else weight
        writer.add_tensor(f"{LFM2.get(name, name)}.weight", flat.contiguous().numpy())
    return _written(writer, path)


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
