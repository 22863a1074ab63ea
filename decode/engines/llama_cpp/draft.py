"""Drafts for llama-cpp-python's own decoding, by its argument `draft_model`."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from llama_cpp.llama_speculative import LlamaDraftModel
from numpy.typing import NDArray

from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.decode.rescoring.calibration import Calibration
from rescore.decode.rescoring.text_memory import TextMemory
from rescore.lm.ngram import NGram

MOST = 16


class LlamaDraft(LlamaDraftModel):
    """`DraftedLlama(model_path=..., draft_model=Draft("lm.ngram"))`, or `Llama(..., logits_all=True)`: chains from the
    text so far, an n-gram model and earlier texts.

    A draft is as long as the most tokens per second come of it, empty where no draft pays: what passes cost is measured
    while the model decodes. Conversations are told apart by their tokens; one object serves one
    model at a time.

    lm           an n-gram model of the model's tokens, or its file; None drafts from texts alone
    most         tokens of a draft
    memory       of earlier texts, to which every answer is added when its conversation is no longer heard of
    calibration  weights of the sources
    cost         as of `TextDrafter`: None measures it
    """

    def __init__(
        self,
        lm: NGram | str | os.PathLike[str] | None = None,
        *,
        most: int = MOST,
        memory: TextMemory | None = None,
        calibration: Calibration | None = None,
        cost: float | None = None,
    ):
        if most < 1:
            raise ValueError(f"most: expected at least 1 token, got {most}")
        self.drafter = TextDrafter(lm, memory=memory, calibration=calibration, cost=cost)
        self.most = most
        self.drafted: list[int] = []  # what came back last

    def __call__(self, input_ids: NDArray[np.intc], /, **kwargs: Any) -> NDArray[np.intc]:
        """The draft behind a text: input_ids intc [n]; what comes back is intc [m], m of 0..most."""
        (draft,) = self.drafter.chains([DraftRow.of_tokens(input_ids)], self.most)
        self.drafted = draft.tolist()
        return draft.astype(np.intc)
