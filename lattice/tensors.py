"""Logits in torch tensors: their most probable tokens, and their rows as arrays."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

PART = 512  # tokens


def top_on_device(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k most probable tokens of logits [..., V], int32 [..., k], and their logp, float32, without waiting for the
    device. The order of equal ones is up to it. ValueError for k > V.

    They are in the k parts of the vocabulary with the greatest logits. Two searches of short rows take a GPU fewer
    kernels than one of rows as long as a vocabulary.
    """
    vocab_size = logits.shape[-1]
    if k > vocab_size:
        raise ValueError(f"k: expected at most V = {vocab_size}, got {k}")
    logits = logits.float()
    parts = torch.nn.functional.pad(logits, (0, -vocab_size % PART), value=-torch.inf).unflatten(-1, (-1, PART))
    which = parts.amax(dim=-1).topk(min(k, parts.shape[-2]), dim=-1).indices
    few = parts.gather(-2, which[..., None].expand(*which.shape, PART)).flatten(-2)
    best, at = few.topk(k, dim=-1)
    ids = (which.gather(-1, at // PART) * PART + at % PART).clamp(max=vocab_size - 1)
    return ids.int(), best - logits.logsumexp(dim=-1, keepdim=True)


def logit_rows(logits: Tensor) -> NDArray[Any]:
    """Logits [..., V] as contiguous rows [m, V]: float32, or bfloat16 as its bits, uint16.

    Contiguous float32 and bfloat16 are not copied; other dtypes are converted to float32.
    """
    rows = logits.detach().reshape(-1, logits.shape[-1]).contiguous()
    if rows.dtype == torch.bfloat16:
        return rows.view(torch.uint16).numpy()
    return rows.float().numpy()
