"""Realigns rows that advance by blocks into `generate`'s steps, and builds its return value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput

from rescore.decode.engines.huggingface.caches import RememberingTarget, fill_cache
from rescore.decode.engines.huggingface.call import GenerateCall
from rescore.decode.engines.huggingface.row import CallRow
from rescore.decode.loop.generate import Chunk
from rescore.decode.models.slot_cache import CACHE, SlotCache


class Steps:
    """The tokens that all rows have decoded so far.

    fill  padding id after a text that has ended; None: there are no steps past the shortest text
    end   the number of tokens at which a row ends, None as long as that is not known: it may have more by then, which
          are dropped
    put   called with each step's tokens int64 [B] as soon as every row has them, as `generate` calls its streamer
    """

    def __init__(
        self,
        batch: int,
        fill: int | None,
        end: Callable[[int], int | None],
        put: Callable[[Tensor], None] | None = None,
    ):
        self.tokens: list[list[int]] = [[] for _ in range(batch)]
        self.ended = [False] * batch
        self._fill, self._end, self._put = fill, end, put
        self._steps: list[Tensor] = []

    def add(self, chunk: Chunk) -> None:
        self.tokens[chunk.request] += chunk.tokens.tolist()
        self.ended[chunk.request] = chunk.finish is not None
        for row, tokens in enumerate(self.tokens):
            end = self._end(row)
            if end is not None and end <= len(tokens):
                del tokens[end:]
                self.ended[row] = True
        self._step()

    def end(self, row: int, fill: int) -> None:
        """Ends a row before the others, which continue; it is filled with `fill` if there is no padding id."""
        self.ended[row] = True
        self._fill = fill if self._fill is None else self._fill
        self._step()

    def _step(self) -> None:
        while (step := self._next()) is not None:
            self._steps.append(step)
            if self._put is not None:
                self._put(step)

    def columns(self) -> Tensor:
        """Returns the tokens of all steps, int64 [B, steps]."""
        return torch.stack(self._steps, dim=1)

    def _next(self) -> Tensor | None:
        at = len(self._steps)
        decoded = [len(tokens) > at for tokens in self.tokens]
        if not any(decoded) or not all(
            has or (ended and self._fill is not None) for has, ended in zip(decoded, self.ended)
        ):
            return None
        return torch.tensor([tokens[at] if has else self._fill for tokens, has in zip(self.tokens, decoded)])


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
    processors = row.processors()
    for i in range(len(logits)):
        scores = logits[i : i + 1]
        for processor in processors:
            scores = processor(text[None, : held + i + 1], scores)
    return cache


def _scores(rows: Sequence[CallRow], columns: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Returns the raw and the processed scores of every step, each float32 [B, V]."""
    recorded = [row.scores_before(new.cpu().numpy()) for row, new in zip(rows, columns)]
    steps = range(columns.shape[1])
    raw, processed = (tuple(torch.cat([row[step][which] for row in recorded]) for step in steps) for which in (0, 1))
    return raw, processed
