"""llama-cpp-python's `Llama`, with logits only where drafts are verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_cpp import Llama

from rescore.decode.engines.llama_cpp.context import is_recurrent
from rescore.decode.engines.llama_cpp.draft import LlamaDraft


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
