"""Hugging Face's own `generate` as a contender: plain, and with its prompt lookup."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rescore.decode.lab.bench.decoding import System, Writer
from rescore.decode.loop.generate import Options
from rescore.decode.loop.request import Finish, Generation, Request, Statistics

LOOKED_UP = 10
HUGGING_FACE = {"Hugging Face plain": None, f"Hugging Face lookup {LOOKED_UP}": LOOKED_UP}
"""prompt_lookup_num_tokens by contender name."""


def huggingface_contender(model: Any, name: str, *, drawn: bool) -> System:
    """Makes the contender of that name for a causal language model of transformers. drawn: whether tokens are drawn."""
    return System(name=name, write=writer(model, HUGGING_FACE[name]), alone=True, drawn=drawn)


def writer(model: Any, lookup: int | None) -> Writer:
    """Returns a writer that calls `generate` and counts passes; the numbers of drafted tokens are unknown."""
    return lambda requests, options: [_written(model, one, options, lookup) for one in requests]


def _written(model: Any, request: Request, options: Options, lookup: int | None) -> Generation:
    ids = torch.from_numpy(np.asarray(request.prompt, np.int64))[None].to(model.device)
    sampling, ends = options.shaping.sampling, sorted(options.stopping.tokens)
    drawn = {"temperature": sampling.temperature, "top_k": 0, "top_p": 1.0} if sampling else {}
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    hook = model.register_forward_hook(count)
    try:
        text = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=options.max_tokens,
            do_sample=sampling is not None,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            logits_processor=[*request.processors],
            prompt_lookup_num_tokens=lookup,
            **drawn,
        )
    finally:
        hook.remove()
    tokens = text[0, ids.shape[1] :].cpu().numpy().astype(np.int32)
    statistics = Statistics()
    statistics.accepted, statistics.drafted = [0] * (passes - 1), [0] * (passes - 1)
    return Generation(tokens=tokens, finish=Finish.LENGTH, statistics=statistics)
