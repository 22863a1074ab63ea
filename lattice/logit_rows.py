"""Logits in a processor's memory, as the native core reads them."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def logit_rows(logits: Tensor) -> NDArray[Any]:
    """Logits [..., V] as rows [m, V], contiguous: float32, or bfloat16 as its bits, uint16.

    A view of contiguous float32 and bfloat16; other dtypes are converted to float32.
    """
    rows = logits.detach().reshape(-1, logits.shape[-1]).contiguous()
    if rows.dtype == torch.bfloat16:
        return rows.view(torch.uint16).numpy()
    return rows.float().numpy()
