"""Estimates the time and disk space of training heads, from short trials on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rescore.decode.loop.prompts import Prompt
from rescore.decode.models.target import Block, Target
from rescore.decode.train.heads_training import Distillation
from rescore.decode.train.own_texts import TextOptions

TRIAL = 512  # rows of the trial of heads
LENGTH = 128  # tokens per row of the timed read
ANSWER = 0.6  # assumed length of an answer, relative to --max-tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The estimate.

    tokens, prompt_tokens          tokens of answers still to make, and of their prompts
    texts_seconds, heads_seconds   time of both stages
    disk                           bytes
    """

    tokens: int
    prompt_tokens: int
    texts_seconds: float
    heads_seconds: float
    disk: int


@torch.inference_mode()
def estimate(
    target: Target,
    prompts: Sequence[Prompt],
    options: TextOptions,
    *,
    there: int,
    read: bool,
    width: int,
    slots: int,
    draft_vocabulary: int,
    rounds: float,
    dtype: torch.dtype,
) -> Estimate:
    """Estimates making the texts of these prompts and training heads on them.

    there: tokens of earlier texts, also trained on; read: whether answers are given as references and only read; width,
    dtype: of hidden states; slots, draft_vocabulary: of the heads; rounds: epochs.
    """
    tokens, asked, prompt, reading, writing = 0.0, 0.0, 0.0, 0.0, 0.0
    if prompts:
        prompt = float(np.mean([len(one.tokens) for one in prompts]))
        answer = float(np.mean([len(one.reference) for one in prompts])) if read else ANSWER * options.max_tokens
        tokens = min(options.tokens or np.inf, answer * len(prompts))
        asked = tokens / answer
        reading = _seconds(lambda: _read(target, 4, LENGTH)) / (4 * LENGTH)
        writing = reading if read else _seconds(lambda: _read(target, options.rows, 1)) / options.rows
    states = torch.zeros(TRIAL, width, dtype=dtype, device=target.device)
    table = torch.zeros(draft_vocabulary, width, dtype=dtype, device=target.device)
    columns = torch.zeros(TRIAL, options.top_k, dtype=torch.int64, device=target.device)
    probs = torch.full((TRIAL, options.top_k), 1 / options.top_k, device=target.device)
    teaching = _seconds(lambda: Distillation.apply(states, table, columns, probs)) / TRIAL
    per_token = 2 * width + 6 * options.top_k + 4
    return Estimate(
        tokens=round(tokens),
        prompt_tokens=round(asked * prompt),
        texts_seconds=asked * prompt * reading + tokens * writing,
        heads_seconds=rounds * (tokens + there) * slots * teaching,
        disk=round(tokens * per_token + asked * prompt * 4),
    )


def _read(target: Target, rows: int, length: int) -> None:
    ids = np.zeros((rows, length), np.int64)
    cache, firsts = target.open(list(ids), 1, length)
    hidden = target.read(Block.of_texts(firsts, [0] * rows, target.device), cache)
    target.logits(hidden[:, -1]).float().sum().item()


def _seconds(call: Callable[[], object]) -> float:
    """Returns the faster of two calls, after one to warm up."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return min(times[1:])
