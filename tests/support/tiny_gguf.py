"""A small GGUF file of a random model without a tokenizer, for llama.cpp."""

from __future__ import annotations

from pathlib import Path

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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
