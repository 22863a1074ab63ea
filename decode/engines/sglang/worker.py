"""SGLang's n-gram worker with our trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sglang.srt.speculative.ngram_worker import NGRAMWorker

from rescore.decode.engines.plugin import EmptyOnError, EngineOptions
from rescore.decode.engines.sglang.grammar import RequestGrammar
from rescore.decode.engines.sglang.rows import RequestTexts, draft_row, tree_arrays
from rescore.lattice.extras import check_version

TESTED = ("0.5.23", "0.6")
TEXTS = 4096  # concurrent requests, more than any server runs


class RescoreWorker(NGRAMWorker):
    """Drafts for each request the tree of its most probable continuations, from one q that blends its text, an n-gram
    model and earlier texts. The tree has --speculative-num-draft-tokens nodes, the root token included.

    Requests are matched by their ids. Options: `EngineOptions` in the environment variable RESCORE_OPTIONS.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        check_version(("sglang",), *TESTED, extra="sglang")
        super().__init__(*args, **kwargs)
        config = self.model_runner.model_config
        ends = sorted(config.hf_eos_token_id or ())
        drafter = EngineOptions.of_environment().drafter(
            vocab_size=config.vocab_size, end=ends[0] if ends else None, texts=TEXTS
        )
        self.ngram_corpus = RequestTexts(EmptyOnError(drafter))

    def _prepare_draft_tokens(self, batch: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns tokens and mask as `tree_arrays` does."""
        rows = [
            draft_row(
                req.rid,
                req.origin_input_ids_unpadded,
                req.output_ids,
                new,
                RequestGrammar.of(req.grammar, self.ngram_corpus.drafter.drafter.vocab_size),
            )
            for req, new in zip(batch.reqs, self._added(batch))
        ]
        nodes = self.draft_token_num - 1
        trees = self.ngram_corpus.drafter.trees(rows, nodes)
        return tree_arrays(trees, [int(row.since(row.size - 1)[0]) for row in rows], self.draft_token_num)

    def _added(self, batch: Any) -> list[Sequence[int]]:
        """Returns accepted tokens that the requests do not hold yet: the last step's, under overlap scheduling."""
        if not self.enable_overlap or batch.grammar_needs_sync():
            return [()] * len(batch.reqs)
        tokens, lengths = batch.spec_info.accept_tokens.tolist(), batch.spec_info.accept_lens.tolist()
        stride = self.draft_token_num
        return [tokens[row * stride : row * stride + length] for row, length in enumerate(lengths)]

    def _update_ngram_corpus(self, batch: Any) -> None:
        """Does nothing: texts are read when they are drafted for."""
