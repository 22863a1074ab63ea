"""A dump as a drafter's session sees it: texts, lattices of the heads, the target's predictions, n-gram models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.models.draft_step import DraftStep, Read
from rescore.decode.models.request_text import RequestText
from rescore.lattice.dump import Dump
from rescore.lattice.dump_block import DumpBlock
from rescore.lattice.sausage import Sausage
from rescore.lm.model.ngram import NGram

ROOM = 1 << 30  # a replay cuts no draft


class RecordedHeads:
    """The lattices of a block's rows, of the first `top_k` candidates (None: all), in place of those of a model; opened
    for the block's sequences, in order.
    """

    def __init__(self, block: DumpBlock, top_k: int | None = None):
        self._block, self._top_k = block, top_k
        # The row of a sequence's first token minus the length of the text up to that token.
        self._first = block.offsets[:-1] - np.diff(block.prompt_offsets) - 1

    @property
    def slots(self) -> int:
        return self._block.slots

    def open(self, requests: int) -> RecordedHeads:
        return self

    def sausages(self, step: DraftStep) -> Sausage:
        sequences, lengths = np.array([(text.number, text.size) for text in step.texts], np.int64).T
        return self._block.sausages(self._first[sequences] + lengths, self._top_k)


class RecordedTexts:
    """The texts of a block's sequences, and the steps that a session is given."""

    def __init__(self, block: DumpBlock):
        self._block = block
        # Tokens of a text up to a row, minus the row.
        self._before = np.diff(block.prompt_offsets) - block.offsets[:-1] + 1
        texts = block.texts
        self._whole = [np.concatenate(both) for both in texts]
        self.texts = [
            RequestText(prompt, number=number, room=len(answer)) for number, (prompt, answer) in enumerate(texts)
        ]
        self._read = [0] * block.sequences  # tokens of each that were in the last step, but its root token

    @property
    def prompts(self) -> list[NDArray[np.int64]]:
        """As they are before the first step."""
        return [text.tokens.astype(np.int64) for text in self.texts]

    def step(self, sequences: NDArray[np.int64], rows: NDArray[np.int64], nodes: int | None) -> DraftStep:
        """The step before the rows' drafts are verified."""
        which, ends = sequences.tolist(), (rows + self._before[sequences]).tolist()
        before = [self._read[s] for s in which]
        for s, end in zip(which, ends):
            self.texts[s].append(self._whole[s][self.texts[s].size : end])
            self._read[s] = end - 1
        return DraftStep(
            texts=[self.texts[s] for s in which],
            room=[ROOM] * len(rows),
            nodes=nodes,
            predictions=self._predictions(which, before, ends),
        )

    def _predictions(
        self, sequences: Sequence[int], before: Sequence[int], ends: Sequence[int]
    ) -> Callable[[int], list[Read]]:
        def predictions(k: int) -> list[Read]:
            return [
                Read(self._whole[s][first : end - 1], *predicted(self._block, s, first + 1, end, k))
                for s, first, end in zip(sequences, before, ends)
            ]

        return predictions


def joined(blocks: Sequence[DumpBlock]) -> DumpBlock:
    """One block of the sequences of several blocks of a dump, to draft for together."""
    if len(blocks) == 1:
        return blocks[0]
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(block, name) for block in blocks])
        for name in ("tokens", "prompt_tokens", "topk_ids", "topk_logp", "entropy", "seeds")
        + ("prompt_topk_ids", "prompt_topk_logp")
        if getattr(blocks[0], name) is not None
    }
    for name in ("offsets", "prompt_offsets"):
        sizes = np.concatenate([np.diff(getattr(block, name)) for block in blocks])
        columns[name] = np.concatenate(([0], sizes.cumsum()))
    return replace(blocks[0], **columns)


def parts_of(block: DumpBlock, sequence: int) -> tuple[slice, slice]:
    """The places of a sequence's prompt and continuation in the block's arrays."""
    prompt = slice(*block.prompt_offsets[sequence : sequence + 2].tolist())
    return prompt, slice(*block.offsets[sequence : sequence + 2].tolist())


def predicted(
    block: DumpBlock, sequence: int, first: int, end: int, k: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """The target's candidates for tokens first..end - 1 of a sequence's text and their probabilities, int32 and float32
    [end - first, k], most probable first; ids -1 where the dump has none.
    """
    prompt, rows = parts_of(block, sequence)
    m, k = prompt.stop - prompt.start, min(k, block.topk_ids.shape[-1])
    ids, p = np.full((end - first, k), -1, np.int32), np.zeros((end - first, k), np.float32)
    known = slice(max(rows.start, rows.start + first - m), rows.start + end - m)
    if known.stop > known.start:
        ids[known.start - known.stop :] = block.topk_ids[known, 0, :k]
        p[known.start - known.stop :] = np.exp(block.topk_logp[known, 0, :k].astype(np.float32))
    if block.prompt_topk_ids is not None and block.prompt_topk_logp is not None and first < m:
        # The prediction after the last prompt token is row 0 of the continuation.
        along = slice(prompt.start + first - 1, prompt.start + min(end, m) - 1)
        ids[: along.stop - along.start] = block.prompt_topk_ids[along, :k]
        p[: along.stop - along.start] = np.exp(block.prompt_topk_logp[along, :k].astype(np.float32))
    return ids, p


def fitted_models(dump: Dump, models: Sequence[NGram]) -> list[NGram]:
    """The models over the dump's vocabulary (`NGram.widened`). ValueError if one has more ids or, where both name one,
    another tokenizer.
    """
    for model in models:
        if model.vocab_size > dump.header.vocab_size:
            raise ValueError(
                f"the model has {model.vocab_size} tokens, the dump {dump.path} has {dump.header.vocab_size}: "
                "build the model with the tokenizer that the dump was made with"
            )
        model.require_tokens()
        if dump.header.tokenizer_sha256:
            model.require_tokenizer(dump.header.tokenizer_sha256)
    return [model.widened(dump.header.vocab_size) for model in models]
