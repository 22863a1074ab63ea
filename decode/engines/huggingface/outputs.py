"""Builds the return value of `generate`: sequences and, on request, scores and the filled cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from rescore.decode.engines.huggingface.caches import RememberingTarget, fill_cache
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.engines.huggingface.row import CallRow
from rescore.decode.engines.huggingface.steps import Steps
from rescore.decode.models.slot_cache import CACHE, SlotCache


def output_of(
    call: GenerateCall, steps: Steps, rows: Sequence[CallRow], target: RememberingTarget | None
) -> Tensor | GenerateDecoderOnlyOutput:
    """Returns ids int64 [B, n + steps], in a dict if the call wants one.

    target: the target that decoded; None if its cache is not needed.
    """
    columns = steps.columns().to(call.ids.device)
    sequences = torch.cat((call.ids, columns), dim=1)
    if target is not None:
        texts = [_read_fill(row, sequences, len(steps.tokens[row.number]), target) for row in rows]
        if call.cache is not None:
            fill_cache(call.cache, texts, [sequences.shape[1] - 1 - pad for pad in call.pads], call.pads)
    if not call.wrapped:
        return sequences
    raw, processed = _scores(rows, columns) if call.scores or call.logits else ((), ())
    fields: dict[str, Any] = {"scores": processed if call.scores else None, "logits": raw if call.logits else None}
    fields[CACHE] = call.cache
    return GenerateDecoderOnlyOutput(sequences=cast(torch.LongTensor, sequences), **fields)


def _read_fill(row: CallRow, sequences: Tensor, written: int, target: RememberingTarget) -> SlotCache:
    """Returns the cache of a row's text without its last token.

    `generate` keeps extending a finished text with the padding id until all texts have ended. The missing positions are
    read here, so that scores and cache equal `generate`'s.
    """
    text = sequences[row.number, row.call.pads[row.number] :]
    last = len(text) - 1
    held = min(row.start + written - 1, last)
    logits, cache = target.read_on(row.number, text[:last], held)
    if row.processors():
        for i in range(len(logits)):
            row.process(text[None, : held + i + 1], logits[i : i + 1])
    return cache


def _scores(rows: Sequence[CallRow], columns: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Returns the raw and the processed scores of every step, each float32 [B, V]."""
    recorded = [row.scores_before(new.cpu().numpy()) for row, new in zip(rows, columns)]
    steps = range(columns.shape[1])
    raw, processed = (tuple(torch.cat([row[step][which] for row in recorded]) for step in steps) for which in (0, 1))
    return raw, processed
