"""Hugging Face's own `generate` as a contender: plain, with its prompt lookup, and with `Drafting`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch

from rescore.decode.engines.huggingface.drafting import Drafting
from rescore.decode.lab.bench.decoding import System
from rescore.decode.loop.generate import Options
from rescore.decode.loop.request import Finish, Generation, Request, Statistics
from rescore.lm.model.ngram import NGram

LOOKED_UP = 10
LOOKUP, DRAFTING = f"Hugging Face lookup {LOOKED_UP}", "Hugging Face Drafting"
HUGGING_FACE = ("Hugging Face plain", LOOKUP, DRAFTING)


def huggingface_contender(model: Any, name: str, lm: NGram | None = None, *, drawn: bool) -> System:
    """Makes the contender of that name for a causal language model of transformers. lm: what `Drafting` drafts from
    beside the text; drawn: whether tokens are drawn.
    """
    how: dict[str, Any] = {"prompt_lookup_num_tokens": LOOKED_UP} if name == LOOKUP else {}
    if name == DRAFTING:
        how["custom_generate"] = Drafting(lm)

    def write(requests: Sequence[Request], options: Options) -> list[Generation]:
        return [_written(model, one, options, how) for one in requests]

    return System(name=name, write=write, alone=True, drawn=drawn)


def _written(model: Any, request: Request, options: Options, how: dict[str, Any]) -> Generation:
    """What `generate` writes. Passes are counted; how many tokens Hugging Face's own drafts have is unknown."""
    ids = torch.from_numpy(np.asarray(request.prompt, np.int64))[None].to(model.device)
    sampling, ends = options.shaping.sampling, sorted(options.stopping.tokens)
    drawn = {"temperature": sampling.temperature, "top_k": 0, "top_p": 1.0} if sampling else {}
    passes = 0

    def count(*_: Any) -> None:
        nonlocal passes
        passes += 1

    drafting = how.get("custom_generate")
    with nullcontext() if drafting else model.register_forward_hook(count):
        text = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=options.max_tokens,
            do_sample=sampling is not None,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            logits_processor=[*request.processors],
            **how,
            **drawn,
        )
    tokens = text[0, ids.shape[1] :].cpu().numpy().astype(np.int32)
    if drafting:
        return Generation(tokens=tokens, finish=Finish.LENGTH, statistics=drafting.statistics[0])
    statistics = Statistics()
    statistics.accepted, statistics.drafted = [0] * (passes - 1), [0] * (passes - 1)
    return Generation(tokens=tokens, finish=Finish.LENGTH, statistics=statistics)
