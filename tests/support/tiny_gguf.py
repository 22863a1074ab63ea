"""Small GGUF files: random models without a tokenizer, for llama.cpp, and models of transformers."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np

V, WIDTH, LAYERS, HEADS, HIDDEN, CONTEXT = 96, 32, 2, 4, 64, 512


def write_gguf(path: Path, seed: int = 0) -> Path:
    """A float32 Llama with repetitive greedy text, so that drafts from the text are often right."""
    draw, square = np.random.default_rng(seed), (WIDTH, WIDTH)
    layer = {"attn_norm": (WIDTH,), "attn_q": square, "attn_k": square, "attn_v": square, "attn_output": square}
    layer |= {"ffn_norm": (WIDTH,), "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    shapes = {"token_embd": (V, WIDTH), "output_norm": (WIDTH,), "output": (V, WIDTH)}
    shapes |= {f"blk.{number}.{name}": shape for number in range(LAYERS) for name, shape in layer.items()}
    tensors = {f"{name}.weight": 0.4 * draw.standard_normal(s) + (len(s) == 1) for name, s in shapes.items()}
    numbers = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": LAYERS, "head_count": HEADS}
    numbers |= {"feed_forward_length": HIDDEN, "layer_norm_rms_eps": 1e-5, "vocab_size": V, "tokenizer_model": "none"}
    return _written(path, "llama", numbers, tensors)


def write_llama(path: Path, model: Any, **tokenizer: Any) -> Path:
    """A Llama of transformers with tied embeddings; `tokenizer` is what the file says of one."""
    config, tensors = model.config, {}
    for name, weight in model.state_dict().items():
        for part, heads in (("q_proj", config.num_attention_heads), ("k_proj", config.num_key_value_heads)):
            if part in name:  # llama.cpp turns neighbouring values together, transformers the halves of a head
                weight = weight.reshape(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)
        if name != "lm_head.weight":
            tensors[name] = weight
    numbers = {"feed_forward_length": config.intermediate_size, "head_count_kv": config.num_key_value_heads}
    return _of_transformers(path, config, tensors, **numbers, layer_norm_rms_eps=config.rms_norm_eps, **tokenizer)


def write_lfm2(path: Path, model: Any) -> Path:
    """An LFM2 of transformers, whose short convolutions have recurrent state, in float32."""
    config = model.config
    tensors = {name: own[:, 0] if own.dim() == 3 else own for name, own in model.state_dict().items()}
    numbers = {
        "feed_forward_length": tensors["model.layers.0.feed_forward.w1.weight"].shape[0],
        "head_count_kv": [config.num_key_value_heads * (kind == "full_attention") for kind in config.layer_types],
        "layer_norm_rms_eps": config.norm_eps,
        "shortconv_l_cache": config.conv_L_cache,
        "tokenizer_model": "none",
    }
    return _of_transformers(path, config, tensors, **numbers)


def _of_transformers(path: Path, config: Any, tensors: dict[str, Any], **numbers: Any) -> Path:
    """A file of tensors under transformers' names."""
    both = {  # what both kinds say of themselves in the same words
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "head_count": config.num_attention_heads,
        "vocab_size": config.vocab_size,
        "rope_freq_base": config.rope_parameters["rope_theta"],
    }
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config.model_type.upper()], config.num_hidden_layers)
    named = {names.get_name(name, (".weight",)): weight for name, weight in tensors.items()}
    return _written(path, config.model_type, both | numbers, named)


def _written(path: Path, kind: str, numbers: dict[str, Any], tensors: dict[str, Any]) -> Path:
    writer = gguf.GGUFWriter(str(path), kind)
    for name, value in numbers.items():
        getattr(writer, f"add_{name}")(value)
    for name, weight in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(weight, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
