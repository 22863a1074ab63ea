"""A causal language model of Hugging Face of seconds, on the noisy chain of words of `tiny_blockwise`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from support.tiny_blockwise import V, text, write_prompts, write_tokenizer

LENGTH = 24
CONFIG = {
    "model_type": "llama",
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 96,
    "tie_word_embeddings": True,
}


def write_inputs(folder: Path, config: dict = CONFIG) -> Path:
    """Token files a.npy and b.npy, tokenizer.json, prompts.jsonl and shape.json."""
    np.save(folder / "a.npy", text(4000, 1))
    np.save(folder / "b.npy", text(900, 2))
    write_tokenizer(folder / "tokenizer.json")
    write_prompts(folder / "prompts.jsonl", 40)
    (folder / "shape.json").write_text(json.dumps(config))
    return folder
