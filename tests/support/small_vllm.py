"""A random model for vLLM, whose greedy texts soon repeat, and an n-gram model of its tokens."""

import os
from pathlib import Path

import numpy as np
import torch
import transformers
from support import cli

from rescore.lm.build.in_memory import build

V, END, LONGEST, OURS = 128, 3, 256, "rescore.decode.engines.vllm.Proposer"


def save_model(path: Path) -> Path:
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
    shape |= {"vocab_size": V, "max_position_embeddings": LONGEST}
    config = transformers.LlamaConfig(**shape, eos_token_id=END, torch_dtype="float32")
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    cli.make_tokenizer(path / "tokenizer.json", V)
    (path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return path


def save_lm(path: Path) -> Path:
    build([np.random.default_rng(0).integers(0, V, 5000)], order=3, vocab_size=V, end_of_text=END).save(path)
    return path


def drafting(lm: Path) -> dict[str, dict]:
    """Options of vLLM."""
    return {
        "speculative_config": {"method": "custom_class", "model": OURS, "num_speculative_tokens": 5},
        "additional_config": {"rescore": {"lm": str(lm), "cost": 0.02}},
    }


def prompts(n: int, seed: int = 0, shared: int = 0) -> list[list[int]]:
    """Prompts of 2 to 60 tokens after a common prefix of `shared` tokens."""
    draw = np.random.default_rng(seed)
    start = draw.integers(4, V, shared).tolist()
    return [start + draw.integers(4, V, draw.integers(2, 60)).tolist() for _ in range(n)]


# Before vLLM is imported: little memory, and no log.
os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", VLLM_LOGGING_LEVEL="ERROR")
