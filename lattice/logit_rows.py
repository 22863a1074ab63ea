"""Logits in CPU memory as the rows that the native core reads."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def logit_rows(logits: Tensor) -> NDArray[Any]:
    """Logits [..., V] as contiguous rows [m, V]: float32, or bfloat16 as its bits, uint16.

    Contiguous float32 and bfloat16 are not copied; other dtypes are converted to float32.
    """
    rows = logits.detach().reshape(-1, logits.shape[-1]).contiguous()
    if rows.dtype == torch.bfloat16:
        return rows.view(torch.uint16).numpy()
    return rows.float().numpy()
