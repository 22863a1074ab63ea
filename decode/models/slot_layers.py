"""What the layers of a Hugging Face model are handed in a pass over a block: our cache and our masks, in their form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rescore.decode.models.slot_cache import SlotCache
from rescore.lattice.extras import needed_for

with needed_for("a model of Hugging Face"):
    from transformers import Cache, DynamicCache, EncoderDecoderCache

__all__ = ["DynamicCache", "EncoderDecoderCache", "SlotLayers", "attention_mask"]


class SlotLayers(Cache):
    """A `SlotCache` as the `past_key_values` of one pass, after `SlotCache.begin`.

    start  how many tokens the rows hold, for models that count positions from it; where rows differ, any number, and
           the model is given its positions
    """

    def __init__(self, cache: SlotCache, start: int = 0):
        super().__init__(layers=[])
        self._cache = cache
        self._start = start

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        return self._cache.update(layer_idx, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._start


def attention_mask(seen: Tensor, implementation: str, dtype: torch.dtype) -> Tensor:
    """bool [R, 1, L, end] as the attention takes it: what is added to the scores, 0 and the least number of `dtype` for
    eager, 0 and -inf for sdpa on a processor, where every layer would make that of a bool mask; elsewhere sdpa's is
    unchanged.

    Masks of four dimensions pass through transformers' own making of masks as they are.
    """
    if implementation == "sdpa" and seen.device.type != "cpu":
        return seen
    unseen = -torch.inf if implementation == "sdpa" else torch.finfo(dtype).min
    return torch.full(seen.shape, unseen, dtype=dtype, device=seen.device).masked_fill_(seen, 0.0)
