"""`generate` of Hugging Face with drafts and without: padded prompts, known texts, chats over one cache."""

from collections.abc import Callable
from typing import Any

import torch
from support.scripted import Scripted
from support.tiny_transformers import V
from transformers import DynamicCache

from rescore.decode.models.slot_cache import CACHE

PLAIN = dict(do_sample=False, eos_token_id=None, pad_token_id=0)
Inputs = dict[str, torch.Tensor]


def padded(prompts) -> Inputs:
    """input_ids and attention_mask of prompts, padded on the left."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


def ragged(*lengths: int, seed: int = 0) -> Inputs:
    """The same of random prompts of these lengths."""
    draw = torch.Generator().manual_seed(seed)
    return padded([torch.randint(3, V, (length,), generator=draw).tolist() for length in lengths])


def texts_of(inputs: Inputs, sequences: torch.Tensor) -> list[list[int]]:
    """The rows of an answer without their padding."""
    return [row[mask.argmax() :].tolist() for row, mask in zip(sequences, inputs["attention_mask"])]


class Prophet(Scripted):
    """Drafts the true continuation from `texts`, wrong after one to five tokens, and a wrong branch."""

    def __init__(self, texts: list[list[int]]):
        self.texts = texts
        super().__init__(self.guess)

    def guess(self, history):
        n = len(history)
        for text in self.texts:
            if text[:n] == history.tolist():
                return [(text[n : n + 1 + n % 5] + [(n + 3) % V] * 6)[:6], [5, 6, 7, -1, -1, -1]]
        return [[5, 6, 7]]


def assert_a_chat_continues(
    model: Any,
    inputs: Inputs,
    drafting_of: Callable[[Inputs, torch.Tensor], Any],
    *,
    most: int = 7,
    new_cache: Callable[[], DynamicCache] = DynamicCache,
    cached: bool = False,
) -> None:
    """Three turns that share a cache, with drafts never, always, at first and later, equal `generate` without a cache.

    drafting_of  (inputs, what `generate` writes) -> custom_generate
    cached  equal `generate` with a cache instead, for models whose keys depend on when they were written (longrope)
    """
    draw = torch.Generator().manual_seed(3)
    caches = {kind: new_cache() for kind in ("never", "always", "at first", "later")}
    for turn in range(3):
        expected = model.generate(**inputs, **PLAIN, max_new_tokens=most)
        for kind, cache in caches.items():
            drafted = {"never": False, "always": True, "at first": turn == 0, "later": turn > 0}[kind]
            more = {"custom_generate": drafting_of(inputs, expected)} if drafted else {}
            got = model.generate(**inputs, **PLAIN, max_new_tokens=most, **{CACHE: cache}, **more)
            if cached and kind == "never":
                expected = got
            assert got.tolist() == expected.tolist(), (turn, kind)
            assert cache.get_seq_length() == caches["never"].get_seq_length()
        said = torch.randint(3, V, (len(expected), 4), generator=draw)
        mask = torch.nn.functional.pad(inputs["attention_mask"], (0, most + 4), value=1)
        inputs = {"input_ids": torch.cat((expected, said), dim=1), "attention_mask": mask}
