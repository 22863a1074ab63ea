"""Drafts for llama-cpp-python's decode loop, through its argument `draft_model`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llama_cpp.llama_speculative import LlamaDraftModel
from numpy.typing import NDArray

from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.lattice.structure import Structure
from rescore.lm.model.ngram import NGram

MAX_TOKENS = 16


class LlamaDraft(LlamaDraftModel):
    """Drafts chains from the text so far, an n-gram model and earlier texts.

    Use it as `DraftedLlama(model_path=..., draft_model=Draft("lm.ngram"))`, or with `Llama(..., logits_all=True)`. The
    draft length maximises tokens per second, from pass times measured while the model decodes; a draft is empty where
    none pays. Conversations are told apart by their tokens. One object serves one model at a time.

    lm           an n-gram model over the target's tokenizer, or its file; None drafts from texts alone
    most         maximum tokens of a draft
    memory       earlier texts; an answer is added once its conversation has been idle for long
    calibration  weights of the sources
    cost         relative cost of a drafted token, as in `TextDrafter`; None measures it
    vocab_size   V of the model, for `bounded`; None: that of the n-gram model
    """

    def __init__(
        self,
        lm: NGram | str | os.PathLike[str] | None = None,
        *,
        most: int = MAX_TOKENS,
        memory: TextMemory | None = None,
        calibration: Calibration | None = None,
        cost: float | None = None,
        vocab_size: int | None = None,
    ):
        if most < 1:
            raise ValueError(f"most: expected at least 1 token, got {most}")
        self.drafter = TextDrafter(lm, vocab_size=vocab_size, memory=memory, calibration=calibration, cost=cost)
        self.most = most
        self.drafted: list[int] = []  # the last draft
        self._structure: Structure | None = None
        self._prompt: int | None = None

    @contextmanager
    def bounded(self, structure: Structure) -> Iterator[None]:
        """Bounds the drafts of one call of the model by what its `grammar` allows, so that none leaves the grammar."""
        self._structure, self._prompt = structure, None
        try:
            yield
        finally:
            self._structure = None

    def __call__(self, input_ids: NDArray[np.intc], /, **kwargs: Any) -> NDArray[np.intc]:
        """Returns the draft after the text `input_ids` intc [n]: intc [m], 0 <= m <= most."""
        if self._prompt is None:
            self._prompt = len(input_ids) - 1  # the first token is sampled without a draft
        row = DraftRow.of_tokens(input_ids, structure=self._structure, prompt=self._prompt)
        (draft,) = self.drafter.chains([row], self.most)
        self.drafted = draft.tolist()
        return draft.astype(np.intc)
