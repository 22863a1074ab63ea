"""Drafts for llama-cpp-python's decode loop, through its argument `draft_model`, and its `Llama` that verifies them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaDraftModel
from numpy.typing import NDArray

from rescore.decode.draft.calibration import Calibration
from rescore.decode.draft.text_memory import TextMemory
from rescore.decode.engines.llama_cpp.context import is_recurrent
from rescore.decode.engines.text_drafter import DraftRow, TextDrafter
from rescore.lattice.checked import whole
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
        self.drafter = TextDrafter(lm, vocab_size=vocab_size, memory=memory, calibration=calibration, cost=cost)
        self.most = whole(most, "most", 1)
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


class DraftedLlama(Llama):
    """A `Llama` with cheaper drafts: the same arguments, the same text.

    With a draft model, `Llama` computes and copies the logits of every token, prompts included, and fails on texts
    longer than `n_batch` unless it has logits_all=True and memory for n_ctx x V logits. Here only drafts and a prompt's
    last token get logits, and the logits are not copied.

    draft_model: a `LlamaDraft`; logits_all=True behaves as in `Llama` and keeps all logits.
    """

    def __init__(self, *args: Any, draft_model: LlamaDraft, logits_all: bool = False, **options: Any):
        super().__init__(*args, draft_model=draft_model, logits_all=logits_all, **options)
        if is_recurrent(self._model.model):
            raise ValueError(
                "model_path: expected a model with attention layers alone, got recurrent ones, from which `Llama` does "
                "not remove rejected drafts; decode it in our loop: LlamaTarget, or `rescore generate --engine "
                "llama.cpp`"
            )
        self._logits_all = logits_all  # Llama sets it whenever there is a draft model

    def eval(self, tokens: Sequence[int]) -> None:
        if self._logits_all:
            super().eval(tokens)
            return
        drafted = self.draft_model.drafted if isinstance(self.draft_model, LlamaDraft) else []
        verifies = len(drafted) > 0 and list(tokens[1:]) == drafted
        self._ctx.kv_cache_seq_rm(-1, self.n_tokens, -1)
        for start in range(0, len(tokens), self.n_batch):
            part = tokens[start : start + self.n_batch]
            self._batch.set_batch(batch=part, n_past=self.n_tokens, logits_all=verifies)
            self._ctx.decode(self._batch)
            self.input_ids[self.n_tokens : self.n_tokens + len(part)] = np.asarray(part, np.intc)
            self.n_tokens += len(part)
        self._requires_eval = False
