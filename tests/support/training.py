"""A tiny model, its tokenizer and prompts for `rescore train`."""

import json
from pathlib import Path

import numpy as np
from support import cli, tiny_transformers
from support.tiny_transformers import V


def training_world(folder: Path, family: str, count: int = 90, **changes: int) -> Path:
    """A folder with a model of this family and prompts of two tasks with references of 9 tokens."""
    tiny_transformers.build(family, **changes).save_pretrained(folder / "model")
    cli.make_tokenizer(folder / "model" / "tokenizer.json", V)
    draw = np.random.default_rng(3)
    with open(folder / "prompts.jsonl", "w") as lines:
        for i in range(count):
            words = " ".join(f"w{one}" for one in draw.integers(3, V, draw.integers(2, 9)))
            reference = draw.integers(3, V, 9).tolist()
            lines.write(json.dumps({"task": f"task{i % 2}", "prompt": words, "reference": reference}) + "\n")
    return folder
