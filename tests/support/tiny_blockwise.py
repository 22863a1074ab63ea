"""A blockwise transformer trained in seconds: four heads on a noisy chain of 23 words, so that drafts may be right."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import structs
from tokenizers import Tokenizer, models

from rescore.decode.draft.calibration import HEADLESS, Calibration
from rescore.decode.draft.settings import ModelFile, PathWeights, Settings
from rescore.decode.models.blockwise import BlockwiseConfig, BlockwiseTarget, BlockwiseTransformer
from rescore.decode.models.draft_step import TOP
from rescore.decode.models.target import Block
from rescore.lattice.split import Split

WORDS = ("<|endoftext|>", *(f"w{i}" for i in range(1, 24)))
V, END = len(WORDS), 0
CONFIG = BlockwiseConfig(
    vocab_size=V, heads=4, layers=2, width=32, attention_heads=2, hidden=64, head_hidden=32, context=96
)


def text(tokens: int, seed: int) -> np.ndarray:
    """uint16 [tokens]: every word has one usual successor; one word in five is another, one in forty ends the text."""
    draw = np.random.default_rng(seed)
    successor = np.random.default_rng(99).permutation(V - 1) + 1
    out = [1]
    for kind in draw.random(tokens - 1):
        out.append(END if kind < 0.025 else int(draw.integers(1, V)) if kind < 0.2 else int(successor[out[-1] - 1]))
    return np.array(out, np.uint16)


def untrained(seed: int = 0, config: BlockwiseConfig = CONFIG) -> BlockwiseTransformer:
    """Random weights, also where training starts from zero."""
    model = BlockwiseTransformer(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((parameter.dim() == 1) + 0.3 * torch.randn(parameter.shape, generator=generator))
    return model


@functools.cache
@torch.inference_mode(False)  # whoever asks first
def trained() -> BlockwiseTransformer:
    """fp32, evaluation mode; do not change it."""
    torch.manual_seed(0)
    model = BlockwiseTransformer(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    stream = torch.from_numpy(text(40000, seed=1).astype(np.int64))
    for _ in range(120):
        ids = stream[torch.randint(len(stream) - 40, (32, 1)) + torch.arange(40)]
        logits = model.all_logits(model(ids))
        ahead = range(1, CONFIG.heads + 1)
        loss = sum(
            torch.nn.functional.cross_entropy(logits[:, :-j, j - 1].flatten(0, 1), ids[:, j:].flatten()) for j in ahead
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def write_tokenizer(path: Path) -> Path:
    Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[0])).save(str(path))
    return path


def write_prompts(path: Path, count: int = 6) -> Path:
    """Two tasks of `count` ragged prompts, interleaved; some references reach the end of text, some do not."""
    with open(path, "w", encoding="utf-8") as lines:
        for i in range(count):
            for task in ("chain", "links"):
                ids = text(60, seed=1000 + 2 * i + (task == "links")).tolist()
                length = 3 + (5 * i) % 11
                row = {
                    "task": task,
                    "id": f"{task}-{i}",
                    "prompt": ids[:length],
                    "reference": ids[length : length + 30],
                }
                lines.write(json.dumps(row) + "\n")
    return path


def write_settings(path: Path, lm: Path, slots: int = 3, **changes: Any) -> None:
    """Writes settings like `rescore tune`, with arbitrary weights."""
    text = ((0.0, 1.0, -1.0), (0.5, 1.0, -1.0))
    settings = {"objective": "tokens per pass", "tokenizer_sha256": None, "values": {}, "top_k": 5, "p": 4}
    settings |= {
        "trees": Calibration(text=text),
        "paths": PathWeights(head=(1.0,), alpha=((0.5,),)),
        "split": Split(dump_sha256="0" * 64, tune={}),
        "models": (ModelFile.of(lm),),
    }
    Settings(vocab_size=V, slots=slots, **settings | changes).save(path)


def write_blend_settings(path: Path, lm: Path, **weights: Any) -> None:
    """The same for models without heads; weights: changes of the calibration."""
    write_settings(path, lm, slots=0, top_k=0, p=0, trees=structs.replace(HEADLESS, **weights), paths=None)


@torch.inference_mode()
def predicted(ids):
    """{w: p} of the most probable tokens after a text, by a pass over the whole text."""
    target = BlockwiseTarget(trained())
    cache, firsts = target.open([np.asarray(ids, np.int64)], 1, len(ids))
    logits = target.logits(target.read(Block.of_texts(firsts, [0], target.device), cache)[0, -1])
    best = torch.softmax(logits.double(), dim=-1).topk(TOP)
    return dict(zip(best.indices.tolist(), best.values.tolist()))
